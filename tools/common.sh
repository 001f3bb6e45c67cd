# shellcheck shell=bash
# Sourced by the scripts in this folder: where the repository is, sections with their time, the build.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
PATH="$root/.deps/cmake/cmake/data/bin:$PATH"  # tools/setup brings one where the system's is too old
set -E  # section's trap holds inside functions too

fail() {
  echo "error: $*" >&2
  exit 1
}

# section NAME COMMAND...: a headline, the command, and how long it took; a failing command ends the script.
section() {
  local name=$1 start=$SECONDS
  shift
  trap "echo 'error: $name failed' >&2" ERR
  echo "== $name"
  "$@"
  echo "== $name: done in $((SECONDS - start)) s"
}

# As many compilers as there are cores, and no more than one per 2 GiB of free memory.
build_jobs() {
  local cores fit
  cores=$(nproc)
  fit=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo)
  echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

# With g++ 12 where c++ is an older one and CXX names none.
configure() {
  local version
  version=$(c++ -dumpversion 2>/dev/null | cut -d. -f1) || true
  if [[ -z ${CXX:-} ]] && ((${version:-0} < 12)) && command -v g++-12 >/dev/null; then export CXX=g++-12; fi
  cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DZEROTH_CUDA="${ZEROTH_CUDA:-AUTO}"
}

# build [TARGET...]: everything, or these targets only.
build() {
  ninja -C build -j "$(build_jobs)" "$@"
}

# debian_repositories [RELEASE]: Debian's repositories as this host's apt knows them, "URI suite component" a line; those of
# another release by its name.
debian_repositories() {
  apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -n 's/^Debian|bookworm[^|]*|//p' | sed "s/ bookworm/ ${1:-bookworm}/" | sort -u
}
