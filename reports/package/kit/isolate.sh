#!/bin/sh
# Start a program as the recorded runs were started: no input, no core files, a temp folder of its own and, where the system
# allows it, a memory group of its own.  Plain sh; everything it makes is removed at the end.
#   isolate.sh [-m BYTES] [-c CPUS] PROGRAM [ARGUMENT...]
set -u
memory='' cpus=''
while getopts m:c: option; do
  case $option in
    m) memory=$OPTARG ;;
    c) cpus=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))

ulimit -c 0
TMPDIR=$(mktemp -d /tmp/replay-XXXXXX) || exit 3
export TMPDIR

group=''
if [ -n "$memory" ]; then
  for place in "/sys/fs/cgroup/memory memory.limit_in_bytes" "/sys/fs/cgroup memory.max"; do
    root=${place% *} limit=${place#* } made=${place% *}/replay-$$
    if mkdir "$made" 2>/dev/null; then
      if (echo "$memory" >"$made/$limit" && echo $$ >"$made/cgroup.procs") 2>/dev/null; then
        (echo 0 >"$made/memory.swap.max") 2>/dev/null
        group=$made
        break
      fi
      rmdir "$made" 2>/dev/null
    fi
  done
fi
REPLAY_GROUP=$group
export REPLAY_GROUP

if [ -n "$cpus" ] && command -v taskset >/dev/null 2>&1; then
  taskset -c "$cpus" "$@" </dev/null
else
  "$@" </dev/null
fi
status=$?

if [ -n "$group" ]; then
  echo $$ >"$root/cgroup.procs"
  rmdir "$group"
fi
rm -rf "$TMPDIR"
exit $status
