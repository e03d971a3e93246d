"""The other side of safetensors_of_pypi_test: PyPI's safetensors, as a library and under PyTorch.

    safetensors_of_pypi.py DIR

DIR/ours/expected.json says what the files beside it hold: every one is read and compared. Files of
our own choice are written to DIR/theirs, with an expected.json of the same form. Of every file in
DIR/odd it is written to DIR/odd/accepted.json whether the library reads it. Ends with status 1 and
one line for each difference.
"""

import json
import pathlib
import sys

import safetensors
import safetensors.torch
import torch

DTYPES = {
    "F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
    "I8": torch.int8, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64,
    "BOOL": torch.bool,
}


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def described(tensors, metadata):
    names = {dtype: name for name, dtype in DTYPES.items()}
    return {"metadata": metadata,
            "tensors": {name: {"dtype": names[t.dtype], "shape": list(t.shape),
                               "bytes": bytes_of(t).hex()} for name, t in tensors.items()}}


def differences(directory):
    for name, want in json.loads((directory / "expected.json").read_text()).items():
        path = directory / name
        raw = dict(safetensors.deserialize(path.read_bytes()))
        found = {key: {"dtype": t["dtype"], "shape": list(t["shape"]),
                       "bytes": bytes(t["data"]).hex()} for key, t in raw.items()}
        if found != want["tensors"]:
            yield f"{name}: deserialize gives {found}, expected {want['tensors']}"
        with safetensors.safe_open(path, "pt") as file:
            found = described({key: file.get_tensor(key) for key in file.keys()}, file.metadata())
        if found != want:
            yield f"{name}: safe_open gives {found}, expected {want}"
        loaded = safetensors.torch.load_file(path)
        if described(loaded, want["metadata"]) != want:
            yield f"{name}: load_file gives other values"


def write_theirs(directory):
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, dtype in DTYPES.items():
        for shape in ([], [0], [3], [2, 0, 4], [5, 7]):
            values = torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator)
            tensors[f"{name} {shape}"] = values.to(dtype)
    named = {"é \u0001 \"quoted\" \\ #1 \U0001f600": torch.arange(3.0), "": torch.ones(1)}
    files = {"all.safetensors": (tensors, {"format": "pt", "note": "a\nb"}),
             "names.safetensors": (named, None), "none.safetensors": ({}, {"format": "pt"})}
    expected = {}
    for name, (values, metadata) in files.items():
        safetensors.torch.save_file(values, directory / name, metadata)
        expected[name] = described(values, metadata)
    (directory / "expected.json").write_text(json.dumps(expected))


def accepts(path):
    try:
        safetensors.deserialize(path.read_bytes())
        with safetensors.safe_open(path, "pt") as file:
            for key in file.keys():
                file.get_slice(key)
    except Exception:  # whatever it is called in this version
        return False
    return True


def main():
    directory = pathlib.Path(sys.argv[1])
    found = list(differences(directory / "ours"))
    write_theirs(directory / "theirs")
    odd = {path.name: accepts(path) for path in (directory / "odd").glob("*.safetensors")}
    (directory / "odd" / "accepted.json").write_text(json.dumps(odd))
    print(f"safetensors {safetensors.__version__}, {len(odd)} odd files, "
          f"{sum(odd.values())} of them accepted")
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
