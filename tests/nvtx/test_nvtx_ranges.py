"""NVTX ranges as a real tool receives them."""

import collections

from feedline.profiler import nvtx_ranges
from feedline.profiler.events import Stage

HEAD = """
    from feedline.profiler import nvtx_ranges
    ranges = nvtx_ranges.ranges()
"""


def test_a_tool_receives_names_in_order_in_the_domain_feedline(under_tool):
    seen = under_tool(
        HEAD
        + """
    ranges.push('next')
    ranges.push('read')
    ranges.pop()
    ranges.push('decode')
    ranges.pop()
    ranges.pop()
    """
    )

    assert seen.told() == ["push next", "push read", "pop", "push decode", "pop", "pop"]
    assert {call.domain for call in seen.calls} == {"feedline"}


def test_a_payload_arrives_and_does_not_stay_with_the_name(under_tool):
    seen = under_tool(
        HEAD + "    for payload in (4096, None, 0): ranges.push('read', payload); ranges.pop()"
    )

    assert [call.payload for call in seen.calls if call.what == "push"] == ["4096", "-", "0"]


def test_a_payload_that_does_not_fit_or_a_name_that_is_no_utf8_still_makes_a_range(under_tool):
    seen = under_tool(
        HEAD + r"    ranges.push('read', 2**70); ranges.pop(); ranges.push('a\udcff.jpg', 3); "
        r"ranges.pop()"
    )

    assert seen.told() == ["push read", "pop", r"push a\udcff.jpg", "pop"]


def test_threads_do_not_mix_up_their_payloads(under_tool):
    seen = under_tool(
        HEAD
        + """
    import threading, time
    def trace(*_):  # like a debugger or a coverage tool: threads switch between the lines of push
        time.sleep(0)
        return trace
    threading.settrace(trace)
    def work(payload):
        for _ in range(200):
            ranges.push('read', payload)
            ranges.pop()
    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for t in threads: t.start()
    for t in threads: t.join()
    """
    )

    payloads = collections.defaultdict(set)
    for call in seen.calls:
        if call.what == "push":
            payloads[call.tid].add(call.payload)
    assert sorted(payloads.values(), key=min) == [{"1"}, {"2"}, {"3"}]


def test_names_without_end_become_other(under_tool):
    seen = under_tool(
        HEAD
        + "    for i in range(nvtx_ranges._MAX_NAMES + 10): ranges.push(f'step {i}'); ranges.pop()"
    )

    pushed = [call.name for call in seen.calls if call.what == "push"]
    assert (
        pushed[nvtx_ranges._MAX_NAMES - 1 :]
        == [f"step {nvtx_ranges._MAX_NAMES - 1}"] + ["other"] * 10
    )


def test_without_a_tool_there_are_no_ranges_and_nvtx_is_not_imported(under_tool):
    seen = under_tool(
        HEAD
        + "    import sys; print(ranges, 'nvtx' in sys.modules, nvtx_ranges._why_not_listening())",
        **{nvtx_ranges._INJECTION: ""},
    )

    assert (
        seen.stdout.strip()
        == f"None False no NVTX tool listens ({nvtx_ranges._INJECTION} is not set)"
    )


def test_a_tool_that_cannot_be_loaded_is_named_and_gives_no_ranges(under_tool):
    seen = under_tool(
        HEAD + "    print(ranges, nvtx_ranges._why_not_listening())",
        **{nvtx_ranges._INJECTION: "/no/such/tool.so"},
    )

    assert (
        seen.stdout.strip()
        == f"None NVTX could not load the tool at {nvtx_ranges._INJECTION}=***.so"
    )


def test_a_missing_nvtx_package_gives_no_ranges_and_says_what_to_install(under_tool):
    seen = under_tool(
        "    import sys; sys.modules['nvtx'] = None"
        + HEAD
        + "    print(ranges, nvtx_ranges._why_not_listening())"
    )

    assert seen.stdout.startswith(
        "None an NVTX tool listens, but the package nvtx cannot be imported"
    )
    assert seen.stdout.strip().endswith("pip install nvtx")


def test_nvtx_disable_is_obeyed(under_tool):
    seen = under_tool(HEAD + "    print(ranges, nvtx_ranges.listening())", NVTX_DISABLE="1")

    assert seen.stdout.strip() == "None False"


def test_ranges_are_named_like_the_stages():
    assert nvtx_ranges.NAMES[Stage.READ] == "read"
    assert nvtx_ranges.NAMES == {
        stage: stage.name.lower() for stage in Stage if stage is not Stage.NAME
    }
