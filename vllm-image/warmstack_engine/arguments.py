"""The arguments of `vllm serve` with the weight cache taken out, for a start from disk.

In: arguments. Out: arguments. Refuses to know: when that is wanted.
"""

_TAKE_OUT = ("--load-format", "--model-loader-extra-config")


def without_weight_cache(arguments: tuple[str, ...]) -> list[str]:
    """Both spellings of an option are found: `--name value` and `--name=value`."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        name = argument.partition("=")[0]
        if skip:
            skip = False
        elif name in _TAKE_OUT:
            skip = "=" not in argument
        else:
            kept.append(argument)
    return kept
