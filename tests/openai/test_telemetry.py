import json
import os
import threading

from lattice_openai.telemetry import TelemetryWriter


def test_lines_are_whole_and_in_order_from_many_threads():
    reader, writer = os.pipe()
    telemetry = TelemetryWriter(writer)

    def emit(name):
        for number in range(200):
            telemetry.emit("http_request", name=name, number=number, filler="x" * 300)

    threads = [threading.Thread(target=emit, args=(name,)) for name in range(4)]
    with os.fdopen(reader, encoding="utf-8") as lines:
        for thread in threads:
            thread.start()
        events = [json.loads(next(lines).removeprefix("@@lattice ")) for _ in range(800)]
        for thread in threads:
            thread.join()
        telemetry.close()
        os.close(writer)
        assert lines.read() == ""
    for name in range(4):
        assert [event["number"] for event in events if event["name"] == name] == list(range(200))


def test_the_wire_form_is_the_prefix_and_compact_json():
    reader, writer = os.pipe()
    telemetry = TelemetryWriter(writer)
    telemetry.emit("ready", port=11435)
    telemetry.close()
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert lines.read() == '@@lattice {"ev":"ready","port":11435}\n'


def test_a_reader_that_went_away_ends_nothing():
    reader, writer = os.pipe()
    os.close(reader)
    telemetry = TelemetryWriter(writer)
    for _ in range(3):
        telemetry.emit("ready", port=1)
    telemetry.close()
    os.close(writer)
    assert not telemetry._thread.is_alive()


def test_a_reader_that_does_not_read_costs_lines_and_never_time():
    reader, writer = os.pipe()
    telemetry = TelemetryWriter(writer)
    for _ in range(12_000):
        telemetry.emit("http_request", filler="x" * 100)
    assert telemetry.dropped > 0
    os.close(reader)
    telemetry.close()
    os.close(writer)


def test_a_non_blocking_descriptor_loses_nothing():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    telemetry = TelemetryWriter(writer)
    for number in range(2000):
        telemetry.emit("e", number=number, filler="x" * 100)
    with os.fdopen(reader) as lines:
        numbers = [json.loads(next(lines).removeprefix("@@lattice "))["number"] for _ in range(2000)]
        telemetry.close()
        os.close(writer)
    assert numbers == list(range(2000))
    assert telemetry.dropped == 0


def test_without_a_descriptor_nothing_is_written():
    telemetry = TelemetryWriter(None)
    telemetry.emit("ready", port=1)
    telemetry.close()
    assert not telemetry._thread.is_alive()
