"""What the scripts here share: the real server as a process, the binary's own answers, and checks that are named."""

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

# A server that says nothing for so long has failed.
PATIENCE = 60


class Server:
    """`emberlm serve` on a free port, for as long as the `with` lasts."""

    def __init__(self, binary, model, *options):
        self.command = [binary, "serve", str(model), "--port", "0", "--log", "none", *map(str, options)]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        # A program that hangs before it says where it is would hold this one for ever.
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.start()
        said = self.process.stdout.readline().strip()
        watchdog.cancel()
        if not said.startswith("http://127.0.0.1:"):
            self.process.kill()
            raise AssertionError(f"{' '.join(self.command)}: the first line was {said!r}")
        self.url = said
        return self

    def __exit__(self, kind, error, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none: it had to be killed"
        rest = self.process.stdout.read()
        if kind is None:
            assert code == 0, f"after SIGTERM the server's exit code was {code}"
            assert rest == "", f"stdout is for the address alone, and had {rest!r} too"


class Checks:
    """Runs named checks one after another, each on its own: a failure does not hide the next one's."""

    def __init__(self):
        self.checks = []
        self.failed = 0

    def __call__(self, name):
        def add(function):
            self.checks.append((name, function))
            return function

        return add

    def run(self, *arguments):
        for name, function in self.checks:
            start = time.monotonic()
            try:
                function(*arguments)
            except Exception:  # A client's own error is a failure like an assertion's.
                self.failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
            else:
                print(f"ok      {name} ({time.monotonic() - start:.1f} s)", flush=True)

    def finish(self):
        passed = len(self.checks) - self.failed
        print(f"{passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed else 0)


class Binary:
    """What the same binary says of the same model without a server."""

    def __init__(self, path, model):
        self.path = path
        self.model = model

    def generate(self, prompt, *options):
        """The greedy continuation of a text or of ids, as `--json` tells it."""
        given = ["--prompt", prompt]
        if not isinstance(prompt, str):
            given = ["--tokens", ",".join(map(str, prompt))]
        command = [self.path, "generate", str(self.model), *given, "--temperature", "0", "--json"]
        command += map(str, options)
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def logits(self, ids, folder):
        """`emberlm logits` of some ids: a row of floats for each, read from the file by its own description."""
        path = Path(folder) / "logits.safetensors"
        command = [self.path, "logits", str(self.model), "--tokens", ",".join(map(str, ids))]
        subprocess.run([*command, "--out", str(path)], check=True, capture_output=True)
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + length])["logits"]
        begin, end = about["data_offsets"]
        values = memoryview(data[8 + length + begin : 8 + length + end]).cast("f")
        width = about["shape"][-1]
        return [list(values[at : at + width]) for at in range(0, len(values), width)]


def arguments(description):
    """The options that every script here has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", required=True, help="the emberlm binary")
    parser.add_argument("--model", required=True, help="a small model with a byte tokenizer")
    return parser


def equal(found, expected, what):
    """Asserts, and shows both."""
    assert found == expected, f"{what}: {found!r}, not {expected!r}"


def close(found, expected, tolerance, what):
    """Asserts that two lists of numbers agree."""
    equal(len(found), len(expected), f"{what}, how many")
    worst = max((abs(a - b) for a, b in zip(found, expected)), default=0)
    assert worst <= tolerance, f"{what}: off by {worst}\n{found}\n{expected}"
