# Runs a program and ends it when the one who asked for it is gone.
#
#   sh -c "$this" supervise FOLDER PROGRAM [ARGUMENT..]
#
# Our standard input is a pipe whose other end only the asking process holds. A line on it says how to end the
# program (fast, immediate, kill); its end says that the asker died, even by SIGKILL: the kernel closes the pipe,
# nothing has to run over there. FOLDER, if not empty, is then removed too. Exit status: the program's.
folder=$1
shift
exec 3<&0 </dev/null
trap '' HUP

"$@" 3<&- >&2 &
program=$!
trap 'kill -INT "$program"' INT TERM
echo "$program"
exec >&2

{
    while read -r how; do
        case $how in
            fast) kill -INT "$program" ;;
            immediate) kill -QUIT "$program" ;;
            kill) kill -KILL "$program" ;;
        esac
    done
    kill -QUIT "$program"
} <&3 2>/dev/null &
watcher=$!
exec 3<&-

# A trapped signal interrupts `wait`: go on until the program has really ended.
while :; do
    wait "$program"
    status=$?
    kill -0 "$program" 2>/dev/null || break
done

# A watcher that ended by itself has read the end of the pipe.
kill -KILL "$watcher" 2>/dev/null
if wait "$watcher" 2>/dev/null && [ -n "$folder" ]; then
    rm -rf "$folder"
fi
exit "$status"
