"""The loss of nanoGPT's last checkpoint over the whole validation split, in windows of its context as emberlm has them.

    peer/bin/python xtask/peers/nanogpt_loss.py CHECKOUT OUT      (OUT/ckpt.pt, and val.bin of its dataset in CHECKOUT/data)

nanoGPT itself estimates it from random windows, which scatters. Prints one line of JSON.
"""
import json, pathlib, sys
import numpy, torch


def main():
    checkout, out = map(pathlib.Path, sys.argv[1:])
    sys.path.insert(0, str(checkout))
    from model import GPT, GPTConfig

    saved = torch.load(out / "ckpt.pt", map_location="cpu")
    model = GPT(GPTConfig(**saved["model_args"]))
    model.load_state_dict(saved["model"])
    model.eval()
    window = saved["model_args"]["block_size"]
    ids = numpy.fromfile(checkout / "data" / saved["config"]["dataset"] / "val.bin", dtype=numpy.uint16)
    ids = torch.from_numpy(ids.astype(numpy.int64))
    count = (len(ids) - 1) // window
    x, y = (ids[d : d + count * window].view(count, window) for d in (0, 1))
    with torch.no_grad():
        sums = [model(a, b)[1].item() * len(a) for a, b in zip(x.split(64), y.split(64))]
    print(json.dumps({"loss": sum(sums) / count, "steps": saved["iter_num"]}))


if __name__ == "__main__":
    main()
