"""What NCCL_DEBUG=INFO prints, in the forms of several versions."""

from feedline.analysis.ranks.nccl_debug import read

TWO_NODES = """
gpu-a:101:101 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
gpu-a:101:140 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>
gpu-a:101:140 [0] NCCL INFO Using network IB
gpu-a:101:140 [0] NCCL INFO comm 0x55d0 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0
gpu-a:101:140 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 40.000000/20.000000, type NVL/PIX, sameChannels 1
gpu-a:101:140 [0] NCCL INFO Channel 00/02 :    0   1   3   2
gpu-a:101:140 [0] NCCL INFO Channel 01/02 :    0   1   3   2
gpu-a:101:140 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu-a:101:140 [0] NCCL INFO Channel 01/0 : 2[0] -> 0[0] [receive] via NET/IB/1/GDRDMA
gpu-a:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu-a:102:141 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
gpu-a:101:140 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..1}
gpu-a:101:140 [0] NCCL INFO AllReduce: 26214400 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
gpu-a:101:140 [0] NCCL INFO 1024 Bytes -> Algo 1 proto 0 time 12.345000
step 3 loss 0.4
"""


def test_topology_and_choices_are_read():
    found = read(TWO_NODES.splitlines())

    assert (found.version, found.ranks, found.nodes, found.network) == (
        "2.21.5+cuda12.4",
        4,
        2,
        "IB",
    )
    assert found.edges == {"NET/IB/GDRDMA": {(2, 0), (1, 3)}, "P2P/CUMEM/read": {(0, 1)}}
    assert found.bandwidth == (40.0, 20.0)
    assert found.choices == {
        ("AllReduce", 4194304, "Tree", "LL128"): 1,
        ("AllReduce", 26214400, "Ring", "Simple"): 1,
        ("collective", 1024, "Ring", "LL"): 1,
    }


def test_it_says_what_matters():
    said = " | ".join(read(TWO_NODES.splitlines()).says())

    assert (
        "4 ranks on 2 nodes" in said
        and "40 GB/s per channel inside a node and 20 GB/s between nodes" in said
    )
    assert "AllReduce of 26,214,400 bytes: Ring, Simple" in said


def test_sockets_and_missing_rdma_are_told():
    sockets = ["h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "h:1:2 [0] NCCL INFO Using "
                                                                             "network Socket",
               "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"]  # fmt: skip
    through_memory = ["h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0"]
    shared = ["h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct"]

    assert any("plain TCP sockets" in line for line in read(sockets).says())
    assert any("GPUDirect RDMA is off" in line for line in read(through_memory).says())
    assert read(shared).says() == [
        "through shared memory of the host: 1 pair of ranks (SHM/direct/direct)"
    ]


def test_both_directions_are_one_pair_and_channels_may_differ_in_rdma():
    line = "h:1:2 [0] NCCL INFO Channel 00/0 : {}[0] -> {}[0] [{}] via NET/IB/0{}"
    sent, received, direct = (
        line.format(0, 8, "send", ""),
        line.format(8, 0, "receive", "/GDRDMA"),
        line.format(0, 8, "send", "/GDRDMA"),
    )

    assert read([sent, received]).says()[-1] == (
        "part of the data between nodes passes through main memory: GPUDirect RDMA is on in some "
        "channels only"
    )
    assert read([direct, received]).says() == ["over the network: 1 pair of ranks (NET/IB/GDRDMA)"]


def test_older_lines_and_warnings_are_read():
    old = ["ip-1:5:6 [0] NCCL INFO Ring 00 : 35 -> 34 [send] via NET/Socket/0",
           "ip-1:5:6 [0] NCCL INFO comm 0x7e rank 15 nranks 64 cudaDev 0 nvmlDev 0 - Init COMPLETE",
           "ip-1:5:6 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote "
           "peer"]  # fmt: skip
    found = read(old)

    assert found.edges == {"NET/Socket": {(35, 34)}} and found.ranks == 64
    assert found.warnings == ("socketProgress: Connection closed by remote peer",)


def test_a_file_without_nccl_says_nothing():
    assert read(["loss 0.1", "", "\x00\xff"]).says() == []
