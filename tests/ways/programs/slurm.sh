# What srun gives to each of two tasks.
port=$(python -c 'import socket; s = socket.socket(); s.bind(("localhost", 0)); print(s.getsockname()[1])')
export SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_NTASKS_PER_NODE=2 SLURM_STEP_ID=0
export MASTER_ADDR=localhost MASTER_PORT=$port
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & second=$!
wait $first && wait $second
