"""Masks that cancel: the arithmetic of secure aggregation, from the primitives of Flower's SecAgg+.

Client i hides its whole numbers x_i (P,) by masks modulo 2^64 (Bonawitz et al., CCS 2017):

    y_i = x_i + PRG(b_i) + sum_{j < i} PRG(s_ij) - sum_{j > i} PRG(s_ij).

s_ij is a secret that only i and j can compute, from one's private and the other's public key; these masks cancel in the
sum. b_i is i's own secret. Shamir shares of b_i and of i's private key are with all clients, encrypted for each. At the
end the clients reveal their shares of b_i for every i that sent y_i, and their shares of the private key of every other
i, and never both for one i. ``threshold`` shares give the secret back.

Keys, shares and encryption are Flower's. Its mask generator is not used, because it folds a secret to 32 bits, and so
few can be tried one by one. Here ChaCha20 stretches all 256 bits.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat, share_keys_plaintext_separate
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

from qfl_core.base.errors import FederationError
from qfl_core.config.private import FEWEST

#: Bytes of a client's own secret b_i.
SECRET = 32


def threshold(asked: int) -> int:
    """Return how many of the clients of a round must stay until its end: more than half, and at least three."""
    return max(FEWEST, asked // 2 + 1)


@dataclass(frozen=True)
class KeyPair:
    """A private key, which stays at its client, and its public half."""

    private: bytes
    public: bytes

    @classmethod
    def make(cls) -> KeyPair:
        """Make a pair from the entropy of the operating system."""
        private, public = generate_key_pairs()
        return cls(private_key_to_bytes(private), public_key_to_bytes(public))


def agreed(private: bytes, public: bytes) -> bytes:
    """Return the secret of two clients: the same from either's private and the other's public key."""
    return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public))


def mask(secret: bytes, length: int) -> np.ndarray:
    """Return PRG(secret): uniform numbers below 2^64, (length,). A secret serves for one mask only."""
    stream = Cipher(algorithms.ChaCha20(secret, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)


def pairwise(i: int, j: int, private: bytes, public: bytes, length: int) -> np.ndarray:
    """Return what client i adds for client j: the mask of both, or its negative modulo 2^64."""
    found = mask(base64.urlsafe_b64decode(agreed(private, public)), length)
    return found if j < i else np.uint64(0) - found


def dealt(
    client: int, secret: bytes, key: bytes, cipher_key: bytes, receivers: Mapping[int, bytes], needed: int
) -> dict[int, bytes]:
    """Return a client's shares of its secret and of its private key, encrypted for each receiver.

    ``receivers`` holds the public key of every client of the round that shares are encrypted for, also the dealer's.
    """
    parts = zip(create_shares(secret, needed, len(receivers)), create_shares(key, needed, len(receivers)), strict=True)
    found = {}
    for (receiver, public), (of_secret, of_key) in zip(receivers.items(), parts, strict=True):
        text = share_keys_plaintext_concat(client, receiver, of_secret, of_key)
        found[receiver] = encrypt(agreed(cipher_key, public), text)
    return found


def opened(client: int, dealer: int, cipher_key: bytes, public: bytes, text: bytes) -> tuple[bytes, bytes]:
    """Return the shares of a dealer's secret and private key that were encrypted for this client."""
    told_dealer, receiver, of_secret, of_key = share_keys_plaintext_separate(decrypt(agreed(cipher_key, public), text))
    if (told_dealer, receiver) != (dealer, client):
        raise FederationError(f"shares of client {told_dealer} for {receiver} came as those of {dealer} for {client}")
    return of_secret, of_key


def masked(client: int, integers: np.ndarray, secret: bytes, key: bytes, publics: Mapping[int, bytes]) -> np.ndarray:
    """Return y_i (P,) of a client's integers (P,); ``publics`` holds the mask keys of all clients of the round."""
    total = integers.astype(np.uint64) + mask(secret, len(integers))
    for other, public in publics.items():
        if other != client:
            total = total + pairwise(client, other, key, public, len(integers))
    return total


def unmasked(
    uploads: Mapping[int, np.ndarray],
    publics: Mapping[int, bytes],
    shares: Mapping[int, Sequence[bytes]],
    needed: int,
) -> np.ndarray:
    """Return the sum (P,) of the integers of all clients in ``uploads``, as int64.

    ``publics`` holds the mask keys of all clients that dealt shares. ``shares`` holds, for a client that uploaded, the
    shares of its secret, and for every other one the shares of its private key.
    """
    total: np.ndarray = np.add.reduce(list(uploads.values()), dtype=np.uint64)
    length = len(total)
    for client in publics:
        found = shares.get(client, ())
        if len(found) < needed:
            raise FederationError(f"{len(found)} shares of client {client} are left, {needed} are needed")
        try:
            secret = combine_shares(list(found)[:needed])
            if client in uploads:
                total = total - mask(secret, length)
            else:
                for other in uploads:
                    # What client ``other`` added for the one that is gone is minus what the latter would have added.
                    total = total + pairwise(client, other, secret, publics[other], length)
        except ValueError as error:
            raise FederationError(f"the shares of client {client} do not fit together: {error}") from None
    return total.view(np.int64)


def new_secret() -> bytes:
    """Return b_i, from the entropy of the operating system."""
    return os.urandom(SECRET)
