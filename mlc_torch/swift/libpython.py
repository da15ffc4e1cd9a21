"""Where this Python's shared library lies, and which executable it is. Prints both; a Swift program asks so."""

import os
import sys
import sysconfig


def libpython() -> str:
    """The path of the library that a program can load to have this Python, or ``""`` where there is none."""
    names = [sysconfig.get_config_var(key) for key in ("INSTSONAME", "LDLIBRARY")]
    names.append("libpython{}.{}.so.1.0".format(*sys.version_info))
    folders = [sysconfig.get_config_var("LIBDIR"), os.path.join(sys.base_prefix, "lib")]
    folders.append(os.path.join(folders[0] or "", sysconfig.get_config_var("MULTIARCH") or ""))
    for name in names:
        for folder in folders:
            path = os.path.join(folder or "", name or "")
            if ".so" in os.path.basename(path) and os.path.isfile(path):
                return path
    return ""


if __name__ == "__main__":
    print(libpython())  # noqa: T201 - the answer
    print(sys.executable)  # noqa: T201
