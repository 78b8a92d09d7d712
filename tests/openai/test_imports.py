import subprocess
import sys


def test_the_plugin_module_imports_nothing_heavy():
    code = (
        "import sys, lattice_openai.plugin;"
        "print([n for n in ('fastapi', 'starlette', 'uvicorn', 'pydantic', 'anyio', 'asyncio') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
