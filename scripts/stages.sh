# Runs the stages of a test run side by side, and counts what they say. Sourced by scripts/test, never run.
# shellcheck shell=bash
#
#   stage NAME COST NEEDS REPEAT COMMAND...    declares a stage; stages with a lower line begin later
#   run_stages SUMMARY                         runs them; SUMMARY: the file that gets the last line, `N passed, N failed`
#
# COST    cores that the stage keeps busy, in quarters: `waits` is one quarter, `core` is four, `cores` is all cores of the machine.
#         A stage begins when its cost fits beside those that run; one that costs more than there is runs alone.
# NEEDS   names of earlier stages, separated by commas; `-` is none. A stage whose needs failed is not run and counts as one failed test.
# REPEAT  the command that repeats the stage alone; `-` is COMMAND itself.
#
# Promises: the output of a stage is kept in target/test-logs/NAME.log and shown in one piece when the stage ends. A stage that fails
# without counting a failed test counts as one. The last lines before the count name each failed test with the command that repeats it.
# A signal ends every stage with its children.

logs=$CARGO_TARGET_DIR/test-logs
declare -a stage_names=() stage_costs=() stage_needs=() stage_repeats=() stage_commands=() table=() failures=()
declare -A state=() began=() index_of_pid=()
capacity=$((4 * $(nproc)))
busy=0

stage() {
    local name=$1 cost
    case $2 in
        waits) cost=1 ;;
        core) cost=4 ;;
        cores) cost=$capacity ;;
        *) die "no such cost: $2" ;;
    esac
    stage_names+=("$name")
    stage_costs+=("$((cost < capacity ? cost : capacity))")
    stage_needs+=("$3")
    stage_repeats+=("$4")
    shift 4
    stage_commands+=("$(printf '%q ' "$@")")
    [[ ${stage_repeats[-1]} != - ]] || stage_repeats[-1]=${stage_commands[-1]% }
    state[$name]=waiting
}

log_of() { echo "$logs/${1// /-}.log"; }

# What a log counts: cargo `test result: ok. 3 passed; 0 failed`, scripts `3 passed, 0 failed`, native `frames: 3 vectors, 0 failed`.
counts_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
        /^test result: / { ok += $4; bad += $6 }
        /^[0-9]+ passed, [0-9]+ failed/ { ok += $1; bad += $3 }
        /^[a-z]+: [0-9]+ [a-z]+, [0-9]+ failed$/ { ok += $2 - $4; bad += $4 }
        END { print ok + 0, bad + 0 }'
}

# The failed tests of a log, one a line: `TEST<tab>COMMAND`. scripts/test-rust says how a Rust test is repeated; others by the stage's script.
failures_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk -v repeat="$2" '
        /^== cargo test / { cargo = substr($0, 4) }
        /^test .* \.\.\. FAILED$/ && cargo { print $2 "\t" cargo " -- --exact " $2; next }
        /^ *(FAILED|FAIL|not ok)[: ]/ { sub(/^ *(FAILED|FAIL|not ok)[: ]+/, ""); print substr($0, 1, 160) "\t" repeat }' | awk '!seen[$0]++'
}

# ended INDEX STATUS
ended() {
    local name=${stage_names[$1]} status=$2 log ok bad found
    log=$(log_of "$name")
    say "$name ($((SECONDS - began[$name])) s)"
    cat "$log"
    read -r ok bad < <(counts_of "$log")
    ((status == 0 || bad > 0)) || bad=1
    finish "$1" "$ok" "$bad" "$(printf '%5d s' $((SECONDS - began[$name])))"
    [[ ${state[$name]} == failed ]] || return 0
    found=$(failures_of "$log" "${stage_repeats[$1]}")
    [[ -n $found ]] || found="$name (exit status $status)"$'\t'"${stage_repeats[$1]}"
    mapfile -t -O "${#failures[@]}" failures <<< "$found"
}

# finish INDEX PASSED FAILED TIME
finish() {
    local name=${stage_names[$1]}
    ((passed += $2)) || true
    ((failed += $3)) || true
    table+=("$(printf '%-34s %5d passed %4d failed %s' "$name" "$2" "$3" "$4")")
    state[$name]=$(($3 > 0))
    state[$name]=${state[$name]/1/failed}
    state[$name]=${state[$name]/0/passed}
}

# Whether the stages that INDEX needs have passed: yes, no, or not known yet.
needs_met() {
    local need answer=yes
    [[ ${stage_needs[$1]} != - ]] || { echo yes; return; }
    while IFS= read -r -d , need; do
        case ${state[$need]-} in
            passed) ;;
            failed) echo no; return ;;
            '') die "${stage_names[$1]} needs '$need', which is no stage before it" ;;
            *) answer=later ;;
        esac
    done <<< "${stage_needs[$1]},"
    echo "$answer"
}

# Starts what can be started, in the order of declaration.
start_stages() {
    local at name met
    for at in "${!stage_names[@]}"; do
        name=${stage_names[at]}
        [[ ${state[$name]} == waiting ]] || continue
        met=$(needs_met "$at")
        if [[ $met == no ]]; then
            finish "$at" 0 1 'not run'
            failures+=("$name (not run: what it needs has failed)"$'\t'"${stage_repeats[at]}")
        elif [[ $met == yes ]] && ((busy + stage_costs[at] <= capacity)); then
            ((busy += stage_costs[at]))
            state[$name]=running
            began[$name]=$SECONDS
            note "begins: $name"
            # A session of its own: a signal to it reaches all of its processes, and no terminal interrupts half of them.
            setsid bash -c "exec ${stage_commands[at]}" > "$(log_of "$name")" 2>&1 < /dev/null &
            index_of_pid[$!]=$at
        fi
    done
}

end_all() {
    local pid
    trap - INT TERM
    for pid in "${!index_of_pid[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
    sleep 1
    for pid in "${!index_of_pid[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
    echo "interrupted" >&2
    exit 130
}

run_stages() {
    local summary=$1 pid status at line
    mkdir -p "$logs"
    trap end_all INT TERM
    start_stages
    while ((${#index_of_pid[@]})); do
        status=0
        wait -n -p pid "${!index_of_pid[@]}" || status=$?
        at=${index_of_pid[$pid]}
        unset "index_of_pid[$pid]"
        ((busy -= stage_costs[at])) || true
        ended "$at" "$status"
        start_stages
    done
    say "Summary after $SECONDS s (output of each stage: $logs)"
    printf '    %s\n' "${table[@]}"
    if ((${#failures[@]})); then
        say "Failed, with the command that repeats it alone"
        for line in "${failures[@]}"; do printf '    %s\n        %s\n' "${line%%$'\t'*}" "${line#*$'\t'}"; done
    fi 2>&1
    echo "$passed passed, $failed failed" | tee "$summary"
    ((failed == 0))
}
