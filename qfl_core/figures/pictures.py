"""Pictures that are stored inside pages and notebooks."""

from __future__ import annotations

from PIL import Image


def with_few_colours(picture: Image.Image, colours: int = 256) -> Image.Image:
    """Return a picture with at most this many colours, which needs a fraction of the bytes.

    The method is the one that keeps the colours of thin lines; Pillow's usual one gives them those of larger areas.
    """
    return picture.quantize(colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
