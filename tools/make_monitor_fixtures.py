#!/usr/bin/env python3
"""Makes tests/monitor/fixtures: the files that DeepSpeed's csv_monitor and TensorBoard's own writer make of a few events.

usage: make_monitor_fixtures.py [--check EVENT_FILE]   needs deepspeed (csv) and tensorboard (events); does what it can
--check: prints the scalars that TensorBoard reads in a file.
"""
import io
import json
import pathlib
import sys
import tempfile
import types

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "monitor" / "fixtures"
WALL_TIME = 1700000000.25
EVENTS = [
    ("Train/Samples/train_loss", 2.5, 8),
    ("Train/Samples/lr", 5e-05, 8),
    ("Train/Samples/loss_scale", 65536.0, 8),
    ("Train/Samples/train_loss", float("nan"), 16),
    ("Train/Samples/lr", 0.0001, 16),
    ("Train/Samples/elapsed_time_ms_forward", 123.456789, 16),
    ("Train/Samples/train_loss", -1e-07, 300),
    ("Train/Samples/lr", 1.2345678901234567e16, 3_000_000_000),
]


def make_csv():
    from deepspeed.monitor import csv_monitor

    csv_monitor.dist = types.SimpleNamespace(get_rank=lambda: 0)
    with tempfile.TemporaryDirectory() as folder:
        config = types.SimpleNamespace(enabled=True, output_path=folder, job_name="job")
        csv_monitor.csvMonitor(config).write_events(EVENTS)
        for path in sorted((pathlib.Path(folder) / "job").iterdir()):
            (FIXTURES / path.name).write_bytes(path.read_bytes())


def make_events():
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    out = io.BytesIO()
    writer = RecordWriter(out)
    writer.write(event_pb2.Event(wall_time=WALL_TIME, file_version="brain.Event:2").SerializeToString())
    for tag, value, step in [*EVENTS, ("Train/Samples/lr", 0.0, 0)]:
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
        writer.write(event_pb2.Event(wall_time=WALL_TIME, step=step, summary=summary).SerializeToString())
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    writer.write(event_pb2.Event(wall_time=WALL_TIME, step=301, session_log=start).SerializeToString())
    path = FIXTURES / "events.out.tfevents.golden"
    path.write_bytes(out.getvalue())
    assert len(read(path)["Train/Samples/lr"]) == 4


def read(path):
    """Tag -> [[step, value]] as TensorBoard reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    accumulator.Reload()
    return {tag: [[e.step, e.value] for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def main():
    if sys.argv[1:2] == ["--check"]:
        print(json.dumps(read(sys.argv[2]), indent=1))
        return
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for make in (make_csv, make_events):
        try:
            make()
        except ImportError as missing:
            print(f"{make.__name__}: left out: {missing}")


if __name__ == "__main__":
    main()
