"""DemoHumanOrWorm: sequences of 200 bases (human 0, worm 1), read from the official zip without unpacking it.

Sequences with another length are dropped and counted, and so are sequences with a letter other than A, C, G, T (the
official intervals include gaps of the assembly, written as NNN...). Lower case is read as upper case.

There are three encodings:

- ``word-id`` is the paper's. Every word of ``200 / features`` letters gets an integer id in the order of first
  appearance along the file list, which is sorted by class. The dictionary covers all sequences, because the test words
  need ids too. This order leaks the label (see :mod:`qfl_core.data.audit`).
- ``word-id-shuffled`` builds the same dictionary along a shuffled list. It is the control of ``word-id``.
- ``kmer`` counts the words of ``kmer`` letters, standardises the counts and reduces them by PCA, all fitted on the
  training split.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.base.errors import ConfigError, DataError
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.data.sources import FoundFile, OfficialFile, digest_of, find_file, require_unchanged
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.data.standin.common import choose_source, describe_source
from qfl_core.data.store import Entry, compact, kept

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

LENGTH = 200
CLASSES = ("human", "worm")
OFFICIAL_COUNTS = {"train/human": 37_500, "train/worm": 37_500, "test/human": 12_500, "test/worm": 12_500}
#: The stand-in is one fixed population in the official proportions; config seeds only choose samples from it.
STANDIN_COUNTS, STANDIN_SEED = {"train": 7_500, "test": 2_500}, 2023

_ENTRY = re.compile(r"(?:.*/)?(train|test)/(human|worm)/([^/]+)\.txt")
_BASES = re.compile(rb"[ACGT]{%d}" % LENGTH)
_MAC_METADATA = "__MACOSX/"
#: A longer entry (in bytes) is not unpacked, because it cannot be one sequence with white space around it.
MAX_ENTRY = 10 * LENGTH
#: The number of sequences whose words are counted in one step.
COUNTED_ROWS = 256


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences in class-sorted file order: ``bases`` (n,) of 200 bytes, ``labels`` (n,), ``names`` (n,).

    A name is ``folder/class/file``, e.g. ``train/human/17``.
    """

    bases: np.ndarray
    labels: np.ndarray
    names: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Sequences:
        """Return the chosen rows, in the order given."""
        return Sequences(self.bases[rows], self.labels[rows], self.names[rows])


def load_genome(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return the training and validation splits from the official train folder, the test split from its test folder.

    The encoder meets the sequences in file order, or in a shuffled order where ``order`` is given or the encoding is
    ``word-id-shuffled``.
    """
    chosen, parts, provenance, notes = draw_sequences(config)
    if order is None and config.encoding == "word-id-shuffled":
        order = stream(config.seed, "word-order")
    rows = np.arange(len(chosen))
    X = encode(chosen, parts[0], config, rows if order is None else order.permutation(rows))
    train, val, test = (Split(X[rows], chosen.labels[rows], chosen.names[rows]) for rows in parts)
    return Splits(train, val, test, provenance, notes)


def draw_sequences(config: ExperimentConfig) -> tuple[Sequences, list[np.ndarray], DataSource, dict[str, int]]:
    """Choose the config's sequences.

    Returns
    -------
    The chosen sequences in file order, the rows of the three splits among them, the source, and what was dropped.
    """
    from qfl_core.data.preprocess import stratified_parts  # here, because scikit-learn takes seconds to import

    if config.encoding.startswith("word-id") and LENGTH % config.features:
        divisors = ", ".join(str(f) for f in range(1, 17) if LENGTH % f == 0)
        raise ConfigError(f"features={config.features} does not divide {LENGTH} letters into words: use {divisors}")
    everything, notes, provenance = genome_sequences(config.source)
    in_test = np.char.startswith(everything.names, "test/")
    parts = []
    for folder, sizes in ((~in_test, (config.train_size, config.val_size)), (in_test, (config.test_size,))):
        rows = np.flatnonzero(folder)
        drawn = stratified_parts(everything.labels[rows], sizes, config.seed, "genome-parts")
        parts += [rows[part] for part in drawn]
    chosen = np.sort(np.concatenate(parts))
    return everything.take(chosen), [np.searchsorted(chosen, part) for part in parts], provenance, notes


def first_angles(config: ExperimentConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every chosen sequence's position in the file list, first angle and label, each (n,)."""
    position = np.concatenate(draw_sequences(config)[1])
    splits = load_splits(config).parts.values()
    return position, np.concatenate([s.X[:, 0] for s in splits]), np.concatenate([s.y for s in splits])


def encode(sequences: Sequences, train: np.ndarray, config: ExperimentConfig, order: np.ndarray) -> np.ndarray:
    """Return the angles (n, features) of all sequences.

    Parameters
    ----------
    sequences : n sequences.
    train : the rows of the training split; scaling and PCA are fitted on them alone.
    config : names the encoding and its settings.
    order : (n,) rows in the order in which the encoder meets them.
    """
    from qfl_core.data.preprocess import angle_scaler

    if config.encoding == "kmer":
        encoder = kmer_pipeline(config)
        inputs = kmer_counts(sequences.bases, config.kmer)
    else:
        encoder = angle_scaler(config)
        inputs = word_ids(sequences.bases, LENGTH // config.features, order)
    met = order[np.isin(order, train)]
    return encoder.fit(inputs[met]).transform(inputs)


def kmer_pipeline(config: ExperimentConfig) -> Pipeline:
    """Return the encoder of counts of all words of ``kmer`` letters: standardisation, PCA, angles."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from qfl_core.data.preprocess import angle_scaler, component_analysis

    words = 4**config.kmer
    if config.features > words:
        raise ConfigError(f"features={config.features}, but there are only {words} words of {config.kmer}")
    return make_pipeline(StandardScaler(), component_analysis(config, words), angle_scaler(config))


def kmer_counts(bases: np.ndarray, k: int) -> np.ndarray:
    """Count the overlapping words of k letters: ``bases`` (n,) of 200 bytes -> (n, 4**k), words in ACGT order."""
    digit = np.zeros(256, np.int32)
    digit[np.frombuffer(b"ACGT", np.uint8)] = range(4)
    digits = digit[bases.view(np.uint8).reshape(len(bases), -1)]
    windows = digits.shape[1] - k + 1
    codes = np.zeros((len(bases), windows), np.int32)
    for offset in range(k):
        codes = 4 * codes + digits[:, offset : offset + windows]
    counts = np.empty((len(bases), 4**k))
    # Some rows at a time, because the counters of all rows together would not fit into the processor's cache.
    for start in range(0, len(bases), COUNTED_ROWS):
        some = codes[start : start + COUNTED_ROWS]
        words = some + 4**k * np.arange(len(some))[:, None]
        found = np.bincount(words.ravel(), minlength=len(some) * 4**k)
        counts[start : start + COUNTED_ROWS] = found.reshape(len(some), -1)
    return counts


def word_ids(bases: np.ndarray, word_size: int, order: np.ndarray) -> np.ndarray:
    """Number the non-overlapping words of ``word_size`` letters by first appearance along ``order``.

    ``bases`` (n,) of 200 bytes -> ids (n, 200 // word_size).
    """
    words = bases.view(f"S{word_size}").reshape(len(bases), -1)
    _, first, inverse = np.unique(words[order].ravel(), return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    ids = np.empty(words.shape)
    ids[order] = rank[inverse].reshape(words.shape)
    return ids


def genome_source(config: ExperimentConfig) -> DataSource:
    """Return where the config's sequences come from, without reading or encoding them."""
    return _describe(_find(config.source))


def genome_sequences(source: str) -> tuple[Sequences, dict[str, int], DataSource]:
    """Return all usable sequences in class-sorted file order, what was dropped, and their source.

    They are read, checked and kept on disk once per content.
    """
    found = _find(source)
    provenance = _describe(found)
    if isinstance(found, FoundFile):
        return *read_genome(found.path), provenance
    return standin_sequences(provenance.sha256), {}, provenance


def _find(source: str) -> FoundFile | str:
    return choose_source(source, "genome", lambda: find_file(OFFICIAL))


def _describe(found: FoundFile | str) -> DataSource:
    return describe_source("genome", found, f"{2 * sum(STANDIN_COUNTS.values()):,} sequences, seed {STANDIN_SEED}")


@lru_cache(maxsize=1)
def standin_sequences(sha256: str) -> Sequences:
    """Return the stand-in population; ``sha256`` is the digest of its generator."""

    def generate() -> Entry:
        from qfl_core.data.standin.genome import generate_genome  # here, because pandas takes long to import

        bases, labels = generate_genome(sum(STANDIN_COUNTS.values()), STANDIN_SEED)
        files = sorted((number, folder) for folder, count in STANDIN_COUNTS.items() for number in range(count))
        names = [f"{folder}/{label}/{number}" for label in CLASSES for number, folder in files]
        return _packed(Sequences(bases, labels, np.array(names)), {})

    return _unpacked(kept("rows", {"dataset": "genome", "sha256": sha256}, generate))[0]


def read_genome(path: Path) -> tuple[Sequences, dict[str, int]]:
    """Read the official zip in place; return its usable sequences and how many were dropped, by reason.

    The sequences are kept on disk, so a file is read once per content.

    Raises
    ------
    DataError
        When the file is damaged or not in the official format.
    """
    return _read(path, digest_of(path))


@lru_cache(maxsize=2)
def _read(file: Path, sha256: str) -> tuple[Sequences, dict[str, int]]:
    """Return the sequences of a file with this digest, and how many were dropped."""

    def read() -> Entry:
        parsed = _packed(*_parse(file))
        require_unchanged(file, sha256)
        return parsed

    return _unpacked(kept("rows", {"dataset": "genome", "sha256": sha256}, read))


def _packed(sequences: Sequences, dropped: dict[str, int]) -> Entry:
    names = np.char.encode(sequences.names, "utf-8")
    return Entry({"bases": sequences.bases, "labels": compact(sequences.labels), "names": names}, {"dropped": dropped})


def _unpacked(entry: Entry) -> tuple[Sequences, dict[str, int]]:
    names = np.char.decode(entry.arrays["names"], "utf-8")
    labels = entry.arrays["labels"].astype(np.int64)
    return Sequences(entry.arrays["bases"], labels, names), dict(entry.facts["dropped"])


def _parse(file: Path) -> tuple[Sequences, dict[str, int]]:
    """Read and check the zip."""
    usable: list[tuple[bytes, int, str]] = []
    dropped = Counter({"another length": 0, "letters other than ACGT": 0})
    with _open(file) as archive:
        for info, (folder, label, name) in sorted(_entries(file, archive), key=_file_order):
            if info.file_size > MAX_ENTRY:
                dropped["another length"] += 1
                continue
            try:
                bases = archive.read(info).strip().upper()
            except (zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
                raise DataError(f"{file.name}: entry {info.filename} is damaged: {error}") from None
            except (RuntimeError, NotImplementedError) as error:  # encrypted, or an unknown way of compressing
                raise DataError(f"{file.name}: entry {info.filename} cannot be read: {error}") from None
            if len(bases) != LENGTH:
                dropped["another length"] += 1
            elif not _BASES.fullmatch(bases):
                dropped["letters other than ACGT"] += 1
            else:
                usable.append((bases, CLASSES.index(label), f"{folder}/{label}/{name}"))
    if len({label for _, label, _ in usable}) < 2:
        raise DataError(f"{file.name} has no usable sequence of one class: dropped {dict(dropped)}")
    sequences, labels, names = zip(*usable, strict=True)
    return Sequences(np.array(sequences, f"S{LENGTH}"), np.array(labels), np.array(names)), dict(dropped)


def _open(file: Path) -> zipfile.ZipFile:
    if file.stat().st_size == 0:
        raise DataError(f"{file.name} is empty")
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(f"{file.name} is not a whole zip file, it may be truncated: {error}") from None


#: An entry of the zip with its folder (train or test), class and file name without the ending.
ZipEntry = tuple[zipfile.ZipInfo, tuple[str, str, str]]


def _entries(file: Path, archive: zipfile.ZipFile) -> list[ZipEntry]:
    listed = [info for info in archive.infolist() if not info.filename.startswith(_MAC_METADATA)]
    matches = [(info, _ENTRY.fullmatch(info.filename)) for info in listed]
    entries = [(info, (match[1], match[2], match[3])) for info, match in matches if match]
    twice = [name for name, count in Counter(entry for _, entry in entries).items() if count > 1]
    if twice:
        raise DataError(f"{file.name} holds {'/'.join(twice[0])}.txt more than once: a name must mean one sequence")
    present = {f"{folder}/{label}" for _, (folder, label, _) in entries}
    if missing := [name for name in OFFICIAL_COUNTS if name not in present]:
        raise DataError(
            f"{file.name} has no entries under {', '.join(missing)}: expected {{train,test}}/{{human,worm}}/*.txt"
        )
    return entries


def _file_order(entry: ZipEntry) -> tuple[str, tuple[int, int, str], str]:
    """Return the sort key of the class-sorted list: class, then file name (2 before 10), then folder."""
    folder, label, name = entry[1]
    number = (0, int(name), "") if name.isdecimal() else (1, 0, name)
    return label, number, folder


def check_official(path: Path) -> tuple[bool, str]:
    """Tell whether a zip is the published one, by the number of its entries and the length of each."""
    with _open(path) as archive:
        entries = _entries(path, archive)
    counts = Counter(f"{folder}/{label}" for _, (folder, label, _) in entries)
    lengths = {info.file_size for info, _ in entries}
    found = ", ".join(f"{name} {counts[name]:,}" for name in OFFICIAL_COUNTS)
    return dict(counts) == OFFICIAL_COUNTS and lengths <= {LENGTH, LENGTH + 1}, found


OFFICIAL = OfficialFile(
    names=("demo_human_or_worm_v0.zip",),
    url="https://zenodo.org/records/16605299/files/demo_human_or_worm_v0.zip?download=1",
    download_name="demo_human_or_worm_v0.zip",
    check=check_official,
)
