"""schemathesis against the server's own description: every check it has, on what the description allows and forbids.

`python tests/clients/described.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it. The
server asks for a key, so that requests without one are among those that are made. In a second run the requests name the
model that there is and reach it; there a code 400 may answer what the description allows, since it cannot say how long
a context is, what tokens there are or which regular expressions are any.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from served import Server, arguments

KEY = "turtle"

# A hook of schemathesis', in a file of its own as it wants it.
NAMED = """
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return
    body["model"] = {name!r}
    # What else would end nearly every conversation before it begins.
    if body.get("top_logprobs") is not None and body.get("logprobs") in (None, False):
        body["logprobs"] = True
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and message.get("role") == "":
            message["role"] = "user"
"""

# Names that an answer has are not used in the requests after it: only the second run reaches the model.
STRANGERS = """
[phases.fuzzing.extra-data-sources]
responses = false
"""

ALLOWED = """
hooks = "named.py"

[checks.positive_data_acceptance]
# There is no administrator: 403.
expected-statuses = ["2xx", 400, 403, 404]
"""


def described(server, folder, args, phases):
    """Whether schemathesis, run in the folder with its configuration there, has found nothing."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {KEY}", "--checks", "all", "--phases", phases]
    command += ["--max-examples", str(args.examples), "--seed", str(args.seed)]
    command += ["--generation-database", "none", "--continue-on-failure", "--no-color"]
    return subprocess.run(command, cwd=folder).returncode == 0


def main():
    parser = arguments(__doc__)
    parser.add_argument("--examples", type=int, default=50, help="random requests of each operation")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "key").write_text(KEY)
        options = ["--api-key-file", folder / "key", "--chat-template", "chatml", "--max-tokens", 64]
        (folder / "schemathesis.toml").write_text(STRANGERS)
        with Server(args.binary, args.model, *options) as server:
            found = {"as it is described": described(server, folder, args, "examples,coverage,fuzzing")}
            (folder / "named.py").write_text(NAMED.format(name=Path(args.model).name))
            (folder / "schemathesis.toml").write_text(ALLOWED)
            found["with the model's name"] = described(server, folder, args, "coverage,fuzzing,stateful")
    for name, passed in found.items():
        print(f"{'ok      ' if passed else 'FAILED  '}{name}", flush=True)
    sys.exit(0 if all(found.values()) else 1)


if __name__ == "__main__":
    main()
