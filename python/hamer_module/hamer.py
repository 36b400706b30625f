"""`from hamer import HamerModel`, as the accelerator card's users write it, by tapetum.

Installed only by who asks for it (`pip install python/hamer_module`): the research package of the same
name, a folder `hamer/` in the same place, goes before this file.
"""

from tapetum import HamerModel, Hand, Hands, Mesh

__all__ = ["HamerModel", "Hand", "Hands", "Mesh"]
