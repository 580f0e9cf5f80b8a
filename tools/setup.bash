# What ./quickstart and ./test share. Sourced, never run.
# Settings of the caller's shell that would reach into the environment made here.
unset PYTHONHOME PYTHONPATH PYTHONWARNINGS
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore

venv=.venv

say() { printf '==> %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

find_python() {
  local name
  for name in python3 python3.11 python3.12 python3.13 python3.14; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  fail "Python 3.11 or newer is needed; install it (Debian: apt-get install python3)"
}

may_apt() {
  command -v apt-get >/dev/null || return 1
  ((EUID == 0)) || sudo -n true 2>/dev/null || { [[ -t 0 ]] && command -v sudo >/dev/null; }
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

apt_install() {
  may_apt || return 1
  say "apt-get install $*"
  as_root apt-get -q update >/dev/null || true
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y install --no-install-recommends "$@" >/dev/null
}

make_venv() {
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 && return
  local python
  python=$(find_python)
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    apt_install python3-venv ||
      fail "this Python has no venv; as root: apt-get install python3-venv"
  fi
  say "make $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
}

# pip_install NAME REQUIREMENT...: once for each state of pyproject.toml.
pip_install() {
  local stamp="$venv/installed-$1" state
  shift
  state=$(printf '%s\n' "$PWD" "$@" | cat - pyproject.toml | cksum)
  [[ -f $stamp && $(<"$stamp") == "$state" ]] && return
  say "pip install $*"
  "$venv/bin/python" -m pip install --quiet "$@"
  printf '%s\n' "$state" >"$stamp"
}
