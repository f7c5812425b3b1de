"""The Python blocks of docs/guides/python.md on a real run, in their order, as in one notebook.

`python tests/clients/analysis.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it. The
numbers that the blocks read are then compared with those of the program.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from served import Checks, arguments, equal

PAGE = Path(__file__).parents[2] / "docs/guides/python.md"

check = Checks()


def blocks():
    """The page's blocks as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


@check("the blocks of docs/guides/python.md read what the program wrote")
def page():
    read = {}
    exec(compile(blocks(), str(PAGE), "exec"), read)
    events = [json.loads(line) for line in open("runs/book/events.jsonl", encoding="utf-8")]
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
    equal(read["steps"].loss.to_dict(), losses, "losses")
    equal(list(read["runs"].name), ["book"], "runs")
    equal(read["runs"]["model.d_model"][0], 64, "a setting")
    best = json.loads(output("emberlm", "runs", "--json"))[0]["best_validation_loss"]
    equal(read["evaluations"].loss.min(), best, "the best loss")
    parameters = json.loads(output("emberlm", "info", "runs/book", "--json"))["parameters"]["total"]
    equal(sum(tensor.size for tensor in read["weights"].values()), parameters, "parameters")


def output(*command):
    return subprocess.run(command, capture_output=True, check=True).stdout


def main():
    options = arguments(__doc__.splitlines()[0]).parse_args()
    binary, model = map(os.path.abspath, (options.binary, options.model))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(model, f"{folder}/runs/book")
        os.mkdir(f"{folder}/bin")
        os.symlink(binary, f"{folder}/bin/emberlm")
        os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        os.chdir(folder)
        check.run()
        os.chdir("/")
    check.finish()


if __name__ == "__main__":
    main()
