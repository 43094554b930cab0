"""Ranges of worker processes, for each way to start one, as a real tool receives them."""

import pytest

PROGRAM = """
    import multiprocessing, os
    from feedline.profiler import nvtx_ranges

    def work(ranges):
        ranges.push('fetch')
        ranges.push('read', os.getpid())
        ranges.pop()
        ranges.pop()

    if __name__ == '__main__':
        context = multiprocessing.get_context('METHOD')
        ranges = nvtx_ranges.ranges()
        ranges.push('next')
        workers = [context.Process(target=work, args=(ranges,)) for _ in range(2)]
        for w in workers: w.start()
        for w in workers: w.join()
        ranges.pop()
        print(os.getpid(), *(w.pid for w in workers), *(w.exitcode for w in workers))
"""

LATE = """
    import multiprocessing, os
    from feedline.profiler import nvtx_ranges

    def work():
        ranges = nvtx_ranges.ranges()
        ranges.push('read')
        ranges.pop()

    worker = multiprocessing.get_context('fork').Process(target=work)
    worker.start()
    worker.join()
    print(worker.pid)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_tool_receives_the_ranges_of_workers(under_tool, method):
    seen = under_tool(PROGRAM.replace("METHOD", method))

    parent, *workers, exit_1, exit_2 = map(int, seen.stdout.split())
    assert (exit_1, exit_2) == (0, 0)
    assert seen.told(parent) == ["push next", "pop"]
    for worker in workers:
        assert seen.told(worker) == ["push fetch", "push read", "pop", "pop"]
        assert {
            call.payload for call in seen.calls if call.name == "read" and call.pid == worker
        } == {str(worker)}
    assert {call.domain for call in seen.calls} == {"feedline"}


def test_a_forked_worker_loads_the_tool_when_its_parent_has_not(under_tool):
    seen = under_tool(LATE)

    assert seen.told() == ["push read", "pop"]
    assert {call.pid for call in seen.calls} == {int(seen.stdout)}
