# Sourced by the commands next to it: gives $root (the checkout) and $python (an interpreter with what is needed).
#
#   environment run        .venv       what a broker needs, on ZooKeeper too
#   environment bench      .venv-bench what the load generator needs
#   environment spark      .venv-spark what Spark jobs need, with Iceberg and Delta tables
#   environment dev        .venv-dev   all of these, and what tests, checks and benchmarks need; who has it needs
#                                      no other for the load generator and Spark
#
# The first call makes the virtual environment; so does one after pyproject.toml changed. Otherwise it costs one
# run of cmp. Several calls at once are safe: one makes the environment, the others wait (.environment.py).
# POSIX sh, so that it starts fast and works everywhere.

case $0 in */*) root=${0%/*}/.. ;; *) root=.. ;; esac
root=$(cd -P -- "$root" && pwd) || exit 1

environment() {
    case $1 in
        run) venv=$root/.venv extras=zookeeper ;;
        bench) venv=$root/.venv-bench extras=bench,zookeeper ;;
        spark) venv=$root/.venv-spark extras=spark,tables ;;
        dev) venv=$root/.venv-dev extras=dev,bench ;;
    esac
    case $1 in
        bench | spark) if [ -f "$root/.venv-dev/.made-from" ]; then venv=$root/.venv-dev extras=dev,bench; fi ;;
    esac
    python=$venv/bin/python
    made_for=
    if [ -f "$venv/.made-for" ]; then
        read -r made_for <"$venv/.made-for"
    fi
    if [ "$made_for" = "$root" ] && [ -x "$python" ] && cmp -s "$root/pyproject.toml" "$venv/.made-from"; then
        return
    fi
    base=$(find_python) || exit 1
    "$base" "$root/bin/.environment.py" "$root" "$venv" "$extras" || exit 1
}

# The first Python that is new enough and can make virtual environments; PYTHON names one to use.
find_python() {
    old= crippled=
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        path=$(command -v "$candidate") || continue
        if ! "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            old=$path
        elif ! "$path" -c 'import venv, ensurepip' 2>/dev/null; then
            crippled=$path
        else
            printf '%s\n' "$path"
            return 0
        fi
    done
    if [ -n "$crippled" ]; then
        echo "minikafka: $crippled cannot make virtual environments: install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2
    elif [ -n "$old" ]; then
        echo "minikafka: needs Python 3.11 or newer, and $old is older" >&2
    else
        echo "minikafka: needs Python 3.11 or newer, and finds none" >&2
    fi
    return 1
}
