"""Compares greedy texts of GGUF files with llama.cpp's, from 20 prompts.

    python llama_greedy.py target/release/emberlm llama.cpp/build/bin/llama-completion model.gguf…

For each file it prints how many texts of emberlm and of llama.cpp equal the exact one, which emberlm computes with the
weights unpacked to f32, and how many of both are equal. Quantized weights have inputs rounded to 8 bits in both
programs, in different ways; where two tokens are nearly as probable, their texts part.
"""

import argparse
import subprocess

PROMPTS = [
    "The capital of France is", "Once upon a time, a fox", "Water boils at", "The three laws of robotics are",
    "In 1969, the first", "def fibonacci(n):", "My favourite recipe is", "The theory of relativity says",
    "A haiku about rain:", "The largest planet in the solar system", "To make bread, first",
    "List of prime numbers: 2, 3,", "Dear Sir or Madam,", "The stock market is", "Photosynthesis is the process",
    "Shakespeare wrote", "The quick brown fox", "Python is a language that", "The moon orbits", "Happiness is",
]


def emberlm(program, file, prompt, tokens, *options):
    command = [program, "generate", file, "--prompt", prompt, "--temperature", "0", "--max-new-tokens", str(tokens)]
    return text_of([*command, *options], prompt)


def llama_cpp(program, file, prompt, tokens):
    command = [program, "-m", file, "-p", prompt, "-n", str(tokens), "--temp", "0", "-no-cnv", "--no-warmup"]
    return text_of(command, prompt).replace(" [end of text]", "").strip()


def text_of(command, prompt):
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    text = run.stdout.strip()
    return text if text.startswith(prompt) else prompt + text


def alike(one, other):
    """The end of a text may lack a character whose last bytes would be in the next token."""
    return one.startswith(other) or other.startswith(one)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("emberlm")
    parser.add_argument("llama_completion")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokens", type=int, default=24)
    args = parser.parse_args()
    for file in args.files:
        ours = theirs = both = 0
        for prompt in PROMPTS:
            exact = emberlm(args.emberlm, file, prompt, args.tokens, "--weights", "f32")
            own = emberlm(args.emberlm, file, prompt, args.tokens)
            peer = llama_cpp(args.llama_completion, file, prompt, args.tokens)
            ours += alike(own, exact)
            theirs += alike(peer, exact)
            both += alike(own, peer)
        print(f"{file}: of {len(PROMPTS)} texts, emberlm's exact {ours}, llama.cpp's exact {theirs}, equal {both}")


if __name__ == "__main__":
    main()
