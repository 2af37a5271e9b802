"""An embedding file and exact search in it.

A folder with `embeddings.safetensors` (one tensor of unit vectors; in its header the model's fingerprint, kind, width,
count and the hash of the other file) and `ids.jsonl` (one line per vector: what it is). Opening it with another model,
or after one of the files has changed, is refused: the results would be wrong without a sign of it.

Shapes: N vectors, E width, Q queries, K hits.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Float32
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from alignfuse.errors import UserError
from alignfuse.files import replace_files
from alignfuse.metrics.ordering import best, order_keys, unpack
from alignfuse.wording import counted

Kind = Literal["image", "text"]
VECTORS, IDS = "embeddings.safetensors", "ids.jsonl"
FORMAT = "alignfuse-embeddings-1"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One result of a search."""

    row: int  # in the index
    record: dict[str, object]  # its line of ids.jsonl
    itc: float  # cosine of query and vector, -1 to 1
    itm: float | None = None  # match logit of the fusion encoder, where the hit was re-ranked

    def to_dict(self) -> dict[str, object]:
        """The record with the named scores."""
        return {**self.record, "itc": self.itc} | ({} if self.itm is None else {"itm": self.itm})


@dataclass(frozen=True, kw_only=True)
class Index:
    """Unit vectors of one kind from one model, with a JSON line about each. Made by `build` or `open_index`."""

    vectors: Float32[Tensor, "N E"]
    lines: list[str]
    kind: Kind
    model: str  # fingerprint

    def record(self, row: int) -> dict[str, object]:
        """What a vector is."""
        record: dict[str, object] = json.loads(self.lines[row])
        return record

    def search(self, queries: Float[Tensor, "Q E"], k: int, *, scores_at_once: int = 2**22) -> list[list[Hit]]:
        """The `k` vectors (all, where there are fewer) of highest cosine with each query, best first.

        Exact; `scores_at_once` bounds the memory. Queries need no unit length.
        """
        if k < 1:
            raise UserError(f"k is {k}: a search gives at least one result")
        if queries.shape[1] != self.vectors.shape[1]:
            width = self.vectors.shape[1]
            raise UserError(f"the query is {queries.shape[1]} wide, the embeddings {width}: not of the same model")
        queries = unit(queries.to(self.vectors.device), "query")
        keys = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
        start = 0
        for vectors in torch.split(self.vectors, max(1, scores_at_once // max(1, len(queries)))):
            rows = torch.arange(start, start + len(vectors), device=queries.device)
            keys = best(torch.cat([keys, order_keys(cosines(queries, vectors), rows[None])], dim=1), k)
            start += len(vectors)
        found = unpack(keys)
        return [
            [Hit(row=row, record=self.record(row), itc=itc) for row, itc in zip(rows, scores, strict=True)]
            for rows, scores in zip(found.candidates.tolist(), found.scores.tolist(), strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Write both files, or, where that fails, leave what stood there."""
        lines = "".join(f"{line}\n" for line in self.lines).encode()
        header = {
            "format": FORMAT,
            "model": self.model,
            "kind": self.kind,
            "width": str(self.vectors.shape[1]),
            "count": str(len(self.vectors)),
            "ids": sha256(lines).hexdigest(),
        }
        vectors = {"embeddings": self.vectors.cpu().contiguous()}
        replace_files(
            {
                folder / IDS: lambda path: path.write_bytes(lines),
                folder / VECTORS: lambda path: save_file(vectors, path, metadata=header),
            }
        )


def build(vectors: Float[Tensor, "N ..."], records: Iterable[Mapping[str, object]], *, kind: Kind, model: str) -> Index:
    """An index of embeddings (of any length) and the JSON records that say what they are."""
    if vectors.ndim != 2:
        raise UserError(f"one embedding per {kind} can be indexed, not the shape {tuple(vectors.shape)}")
    lines = [json_line(dict(record)) for record in records]
    if len(lines) != len(vectors):
        raise ValueError(f"{len(vectors)} embeddings, but {len(lines)} records")
    if not lines:
        raise UserError("nothing to search in: no embeddings")
    return Index(vectors=unit(vectors, "embedding"), lines=lines, kind=kind, model=model)


def json_line(record: dict[str, object]) -> str:
    """The record as JSON to be written as UTF-8; escaped where a file name holds bytes that are no UTF-8."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(record)
    return line


def open_index(folder: Path, *, model: str) -> Index:
    """The index in a folder, if it was made with the model of this fingerprint and both files belong together."""
    for name in (VECTORS, IDS):
        if not (folder / name).is_file():
            raise UserError(f"{folder}: no {name} there; write it with `alignfuse embed`")
    header, vectors = _read_vectors(folder / VECTORS)
    if header["model"] != model:
        raise UserError(
            f"{folder}: embedded with another model ({header['model'][:12]}, this one is {model[:12]}); embed again"
        )
    content = (folder / IDS).read_bytes()
    lines = content.decode(errors="replace").removesuffix("\n").split("\n")  # no splitlines: a caption may hold U+2028
    if len(lines) != len(vectors):
        raise UserError(
            f"{folder / IDS}: {counted(len(lines), 'row')} for {counted(len(vectors), 'embedding')}; embed again"
        )
    if sha256(content).hexdigest() != header["ids"]:
        raise UserError(f"{folder / IDS}: changed since the embeddings were written; embed again")
    kind: Kind = "image" if header["kind"] == "image" else "text"
    return Index(vectors=vectors, lines=lines, kind=kind, model=model)


def unit(vectors: Float[Tensor, "N E"], what: str) -> Float32[Tensor, "N E"]:
    """The vectors at length 1, float32. One without direction is an error."""
    vectors = vectors.float()
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    bad = ~lengths.isfinite() | (lengths == 0)
    if bad.any():
        raise UserError(f"{what} {int(bad.int().argmax())} is zero or not finite: it has no direction")
    normalised: Tensor = vectors / lengths
    return normalised


def cosines(queries: Float32[Tensor, "Q E"], vectors: Float32[Tensor, "N E"]) -> Float32[Tensor, "Q N"]:
    """Cosines of unit vectors, in full precision; rounding cannot take them out of [-1, 1]."""
    with torch.autocast(queries.device.type, enabled=False):
        return (queries @ vectors.T).clamp(-1.0, 1.0)


def _read_vectors(path: Path) -> tuple[dict[str, str], Float32[Tensor, "N E"]]:
    """Header and tensor, mapped from the file."""
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            vectors: Tensor = file.get_tensor("embeddings")
    except SafetensorError as error:
        raise UserError(f"{path}: not an embedding file ({error})") from error
    if header.get("format") != FORMAT or not header.keys() >= {"model", "kind", "width", "count", "ids"}:
        raise UserError(f"{path}: not an embedding file (format {header.get('format')}, expected {FORMAT})")
    if (header["count"], header["width"]) != (str(len(vectors)), str(vectors.shape[1])):
        raise UserError(f"{path}: the header says {header['count']} x {header['width']}, not {tuple(vectors.shape)}")
    return header, vectors
