"""What came of a part, and of all parts: JSON as it goes, Markdown for people."""
import datetime
import json
import os
import tarfile
import threading


def write_atomically(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")


def path_of(setup, name):
    """The result of a part."""
    return setup.out / "parts" / f"{name}.json"


def status_of(checks):
    passed = any(c["status"] == "passed" for c in checks) and all(c["status"] != "failed" for c in checks)
    return "passed" if passed else "failed"


class Record:
    """The result of one part, on disk after every line: a part that is ended has left what it found. Threads share it."""

    def __init__(self, setup, name):
        self.path = path_of(setup, name)
        self.lock = threading.Lock()
        self.data = {"part": name, "status": "running", "when": now(), "seconds": 0, "checks": [], "tables": [],
                     "notes": []}
        self.save()

    def save(self):
        with self.lock:
            write_atomically(self.path, json.dumps(self.data, indent=1) + "\n")

    def check(self, name, passed, figure="", why=""):
        """One thing that was looked at. `why`: what went wrong, told only if it did."""
        status = "passed" if passed else "failed"
        self.data["checks"].append({"name": name, "status": status, "figure": figure, "why": "" if passed else why})
        self.save()
        print(f"  {status}: {name}" + (f": {figure}" if figure else "") + ("" if passed else f": {why}"), flush=True)
        return passed

    def left_out(self, name, why):
        """Something that this machine cannot show; no failure, and never silent."""
        self.data["checks"].append({"name": name, "status": "left out", "figure": "", "why": why})
        self.save()
        print(f"  left out: {name}: {why}", flush=True)

    def table(self, title, header, rows):
        self.data["tables"].append({"title": title, "header": header, "rows": [[str(cell) for cell in row] for row in rows]})
        self.save()

    def note(self, text):
        self.data["notes"].append(text)
        self.save()

    def end(self, seconds):
        self.data.update(status=status_of(self.data["checks"]), seconds=round(seconds, 1))
        self.save()


def load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def end_early(path, name, why, seconds):
    """A part that could not end itself has failed, with the checks that it made."""
    data = load(path) or {"part": name, "when": now(), "checks": [], "tables": [], "notes": []}
    data["checks"].append({"name": "the part itself", "status": "failed", "figure": "", "why": why})
    data.update(status="failed", seconds=round(seconds, 1))
    write_atomically(path, json.dumps(data, indent=1) + "\n")


def cells(row):
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def markdown(part):
    lines = [f"## {part['part']}: {part['status']}, {part['seconds']:.0f} s, {part['when']} UTC", ""]
    if part["checks"]:
        lines += ["| check | | figure |", "|---|---|---|"]
        for check in part["checks"]:
            told = "; ".join(text for text in (check["figure"], check["why"]) if text)
            lines.append(cells([check["name"], check["status"], told]))
        lines.append("")
    for table in part["tables"]:
        lines += [f"{table['title']}:", "", cells(table["header"]), "|" + "---|" * len(table["header"])]
        lines += [cells(row) for row in table["rows"]] + [""]
    lines += [f"- {note}" for note in part["notes"]] + ([""] if part["notes"] else [])
    return lines


class Whole:
    """The results of all parts that lie in the folder."""

    def __init__(self, setup):
        self.setup = setup
        self.left_out = []  # for want of time

    def part(self, name):
        return load(path_of(self.setup, name))

    def passed(self, name):
        part = self.part(name)
        return part is not None and part["status"] == "passed"

    def failed(self, name):
        part = self.part(name)
        return part is not None and part["status"] == "failed"

    def pack(self):
        """The results of parts and the logs of their runs as one file, which a later call can begin with."""
        with tarfile.open(self.setup.out / "gpu_check.tar.xz", "w:xz") as archive:
            for name in ("parts", "runs"):
                if (self.setup.out / name).exists():
                    archive.add(self.setup.out / name, name)

    def line(self, name):
        part = self.part(name)
        failed = [check["name"] for check in part["checks"] if check["status"] == "failed"]
        return f"{name}: {part['status']} in {part['seconds']:.0f} s" + (f" ({', '.join(failed)})" if failed else "")

    def write(self):
        from gpu_checks import parts  # which imports this
        found = {name: part for name in ("build", *parts.NAMES) if (part := self.part(name))}
        whole = {"machine": self.setup.machine(), "when": now()[:10], "left_out": self.left_out, "parts": found}
        write_atomically(self.setup.out / "gpu_check.json", json.dumps(whole, indent=1) + "\n")
        lines = ["# Checked on " + whole["machine"]["gpus"], ""]
        lines += [f"- {name}: {value}" for name, value in whole["machine"].items()]
        if self.left_out:
            lines.append(f"- left out, as the time was over: {', '.join(self.left_out)}")
        lines.append("")
        lines += markdown(found["build"]) if "build" in found else []
        for name in parts.NAMES:
            lines += markdown(found[name]) if name in found else [f"## {name}: not run", ""]
        write_atomically(self.setup.out / "gpu_check.md", "\n".join(lines))
