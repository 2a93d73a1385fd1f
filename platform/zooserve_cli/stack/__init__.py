"""Does a compose file hang together? Ours, or a user's own: images, files, variables, flags, ports, addresses, GPUs.

A check passes: reading (lines, variables, `extends`) -> stack (what a profile starts) -> the rules, one module a noun;
inspection puts them together. What programs of other houses take is in `recorded/`; ours is asked itself.
"""
