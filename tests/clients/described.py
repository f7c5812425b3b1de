"""schemathesis against the server's own description: every check it has, on what the description allows and forbids.

`python tests/clients/described.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it. The
server asks for a key, so that requests without one are among those that are made.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from served import Server, arguments

KEY = "turtle"


def main():
    parser = arguments(__doc__)
    parser.add_argument("--examples", type=int, default=40, help="random requests of each operation")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_text(KEY)
        options = ["--api-key-file", key, "--chat-template", "chatml", "--max-tokens", 64]
        with Server(args.binary, args.model, *options) as server:
            command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
            command += ["--header", f"Authorization: Bearer {KEY}", "--checks", "all"]
            command += ["--max-examples", str(args.examples), "--seed", str(args.seed)]
            command += ["--generation-database", "none", "--continue-on-failure", "--no-color"]
            # In its folder, so that no configuration of the caller's counts and nothing is left behind.
            code = subprocess.run(command, cwd=folder).returncode
    print("ok      described" if code == 0 else "FAILED  described", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
