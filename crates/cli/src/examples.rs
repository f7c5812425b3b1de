//! The examples at the end of each command's `--help`. A test parses each of them.

pub const PREPARE: &str = "\
Examples:
  emberlm prepare book.txt --out datasets/book --tokenizer gpt2
  emberlm prepare 'data/*.jsonl.gz' --field text --out datasets/web --tokenizer cl100k --dedup
  emberlm prepare talks.jsonl --chat-template chatml --out datasets/talks --tokenizer byte";

pub const DATA: &str = "\
Examples:
  emberlm data inspect datasets/book
  emberlm data verify datasets/book
  emberlm data adopt fineweb10B --tokenizer gpt2
  emberlm data export datasets/book --format nanogpt --out nano";

pub const TOKENIZER: &str = "\
Examples:
  emberlm tokenizer train book.txt --vocab-size 32000 --out tokenizers/book
  emberlm tokenizer stats book.txt --tokenizer tokenizers/book --tokenizer gpt2
  emberlm tokenizer convert qwen.tiktoken --pattern qwen2 --out qwen";

pub const TRAIN: &str = "\
Examples:
  emberlm train
  emberlm train --data datasets/book --preset char-nano --steps 2000 --out runs/book
  emberlm train --from MODEL --data datasets/book --out runs/tuned
  emberlm train --from BERT --objective classify --data reviews.csv --out runs/reviews
  emberlm train --resume runs/book";

pub const LR_FIND: &str = "\
Examples:
  emberlm lr-find --data datasets/book --preset char-nano --plot rates.png
  emberlm lr-find --from MODEL --data datasets/book --adapter lora --highest 0.1";

pub const SWEEP: &str = "\
Examples:
  emberlm sweep rates.toml --parallel 2
  emberlm sweep rates.toml --dry-run";

pub const SCALE: &str = "\
Examples:
  emberlm scale plan runs/laws --data book --time 30m
  emberlm scale run runs/laws
  emberlm scale fit runs/laws --out laws.html
  emberlm scale predict runs/laws --flops 1e15
  emberlm scale fit --losses losses.csv";

pub const PLOT: &str = "\
Examples:
  emberlm plot runs/book --out book.html
  emberlm plot runs/book runs/small --y gradient_norm --x tokens --log-scale --out norms.png
  emberlm plot runs/rates --group-by learning_rate --out rates.svg
  emberlm plot runs/rates --x learning_rate --group-by configuration --best --out best.png
  emberlm plot runs/rates --out curves.csv";

pub const RUNS: &str = "\
Examples:
  emberlm runs
  emberlm runs show runs/book
  emberlm runs --csv > runs.csv
  emberlm runs rm runs/small --yes
  emberlm runs tag runs/book baseline
  emberlm runs diff runs/book runs/small";

pub const REPORT: &str = "\
Examples:
  emberlm report runs/book --out book.html
  emberlm report runs/rates --out rates.md";

pub const WATCH: &str = "\
Examples:
  emberlm watch
  emberlm watch runs/book runs/small --port 8090";

pub const FIT: &str = "\
Examples:
  emberlm fit --preset gpt2-small --memory 8GiB
  emberlm fit --from MODEL --no-measure
  emberlm fit --from BERT --objective classify --data reviews.csv";

pub const EMBED: &str = "\
Examples:
  emberlm embed all-MiniLM-L6-v2 sentences.txt > vectors.jsonl
  emberlm embed all-MiniLM-L6-v2 texts.jsonl --jsonl --with-text";

pub const CLASSIFY: &str = "\
Examples:
  emberlm classify distilbert-sst2 reviews.txt
  emberlm classify MODEL pairs.jsonl --jsonl";

pub const DEVICES: &str = "\
Examples:
  emberlm devices
  emberlm devices --json";

pub const DOCTOR: &str = "\
Examples:
  emberlm doctor --backend vulkan
  emberlm doctor --full --backend cuda --out report";

pub const MEASURE: &str = "\
Examples:
  emberlm measure step --preset gpt2-small --batch 8 --backend cuda
  emberlm measure step --preset gpt2-small --set train.seq_len=64 --decode --backend vulkan --json";

pub const GENERATE: &str = "\
Examples:
  emberlm generate runs/book --prompt 'The '
  emberlm generate MODEL --prompt 'The ' --temperature 0 --max-new-tokens 100
  emberlm generate MODEL --prompt 'Answer: ' --json-schema schema.json
  emberlm generate FLAN-T5 --prompt 'Translate to German: Hello' --beams 4";

pub const CHAT: &str = "\
Examples:
  emberlm chat MODEL
  emberlm chat hf:HuggingFaceTB/SmolLM2-135M-Instruct
  emberlm chat MODEL --system 'Be brief.' --temperature 0.5";

pub const SERVE: &str = "\
Examples:
  emberlm serve MODEL
  emberlm serve small=runs/small large=MODEL --port 8000 --api-key-file key
  emberlm serve --follow runs/book
  emberlm serve all-MiniLM-L6-v2 flan-t5-small";

pub const BENCH: &str = "\
Examples:
  emberlm bench MODEL
  emberlm bench small.gguf large.gguf --prompt-tokens 512 --decode 128
  emberlm bench MODEL --weights int8 --batch-size 8 --json";

pub const EVAL: &str = "\
Examples:
  emberlm eval runs/book --data datasets/book
  emberlm eval MODEL --task arc_easy.yaml --task gsm8k.yaml
  emberlm eval MODEL --core eval_bundle
  emberlm eval MODEL --hellaswag hellaswag_val.jsonl --limit 1000";

pub const LOGITS: &str = "\
Examples:
  emberlm logits MODEL --tokens 1,2,3 --out logits.safetensors";

pub const ATTENTION: &str = "\
Examples:
  emberlm attention runs/book --prompt 'The cat'
  emberlm attention runs/book --prompt 'The cat' --out attention.html
  emberlm attention t5-small --prompt 'translate English to German: The cat' --of cross";

pub const ACTIVATIONS: &str = "\
Examples:
  emberlm activations runs/book --prompt 'The cat' --out cat.safetensors
  emberlm activations MODEL --tokens 1,2,3 --site 'blocks.*.hook_resid_post' --site 'blocks.0.attn.*' --out some.safetensors";

pub const LENS: &str = "\
Examples:
  emberlm lens runs/book --prompt 'The cat'
  emberlm lens MODEL --tokens 1,2,3 --position 1 --top 3 --json";

pub const PATCH: &str = "\
Examples:
  emberlm patch MODEL experiments.toml
  emberlm patch runs/book experiments.toml --json";

pub const INFO: &str = "\
Examples:
  emberlm info
  emberlm info gpt2-small
  emberlm info MODEL --json";

pub const NEW: &str = "\
Examples:
  emberlm new --preset gpt2-small --out model
  emberlm new --preset char-nano --set model.n_layers=2 --vocab-size 100 --out model
  emberlm new --preset bert-nano --tokenizer tokenizers/book --out encoder";

pub const EXPORT: &str = "\
Examples:
  emberlm export runs/book --out book-hf
  emberlm export MODEL --weights int8 --out model-int8
  emberlm export MODEL --format gguf --type q4_k_m --calibration text.txt --out model-q4_k_m.gguf";

pub const MERGE: &str = "\
Examples:
  emberlm merge runs/answers --out answers-merged
  emberlm merge MODEL --adapter ADAPTER --out merged";

pub const COMPLETIONS: &str = "\
Examples:
  emberlm completions bash > ~/.local/share/bash-completion/completions/emberlm
  emberlm completions zsh > ~/.zfunc/_emberlm
  emberlm completions fish > ~/.config/fish/completions/emberlm.fish";

pub const MAN: &str = "\
Examples:
  emberlm man --out ~/.local/share/man/man1";

pub const MODELS: &str = "\
Examples:
  emberlm models
  emberlm models runs/sweep --json";

pub const PULL: &str = "\
Examples:
  emberlm pull hf:HuggingFaceTB/SmolLM2-135M-Instruct
  emberlm pull hf:sentence-transformers/all-MiniLM-L6-v2@main
  emberlm pull hf:ORG/NAME/FILE.gguf";
