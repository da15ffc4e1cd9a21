"""Apple's modules beside ML Compute that programs import, as far as they are here."""

from __future__ import annotations

from collections.abc import Iterable

from mlc_torch.swift.saying import SwiftTrouble

USUAL = {
    "Metal": "the list of GPUs, MTLDevice, MTLCopyAllDevices and MTLCreateSystemDefaultDevice",
    "Combine": "ObservableObject and @Published",
    "PlaygroundSupport": "PlaygroundPage",
}
"""Neighbours of Apple's that every program gets, and what is in them."""

ON_REQUEST = {
    "UIKit": "UIViewController with viewDidLoad(), no windows",
    "SwiftUI": "the name, with Combine's ObservableObject and @Published, no views",
    "Cocoa": "the name, with Foundation",
    "CoreGraphics": "the name, with Foundation's CGFloat, CGPoint, CGSize and CGRect",
}
"""Neighbours that only ``--with`` gives: where they are importable, programs believe that they can show something."""


def chosen_neighbours(with_: Iterable[str] = (), without: Iterable[str] = ()) -> tuple[str, ...]:
    """The usual ones, changed by ``--with`` and ``--without``."""
    names = list(USUAL)
    for name in with_:
        if name not in ON_REQUEST and name not in USUAL:
            raise SwiftTrouble(f"--with {name}: there is no such neighbour; there is {', '.join(ON_REQUEST)}", 2)
        names.append(name)
    for name in without:
        if name not in USUAL:
            raise SwiftTrouble(f"--without {name}: there is no such neighbour; there is {', '.join(USUAL)}", 2)
    return tuple(name for name in dict.fromkeys(names) if name not in set(without))
