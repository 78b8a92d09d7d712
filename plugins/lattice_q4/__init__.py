"""The loader ``q4``: KHQ4 directories, packed weights re-laid without loss; and the command ``quantize``."""
