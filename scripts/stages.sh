# Runs the stages of a test run side by side, and counts what they say. Sourced by scripts/test, never run.
# shellcheck shell=bash
#
#   stage NAME COST NEEDS COMMAND...    declares a stage; of those that can begin, the one that was declared first does
#   run_stages [NAME...]                runs them, or only the named ones and what these need
#
# COST    `core`: the stage keeps about one core busy. `half`: half of one. `waits`: a quarter. A stage begins when its cost fits beside those that run.
# NEEDS   names of earlier stages, separated by commas; `-` is none. A stage whose needs failed is not run and counts as one failed test.
#         `*` is the end of all other stages, whatever has become of them.
#
# Promises: the output of a stage is kept in $logs/NAME.log, and what its processes took of the processor in NAME.log.times. The output is shown
# in one piece when the stage ends. A stage that fails without counting a failed test counts as one, and so does one that has not ended after
# $stage_limit seconds. The last lines before the count name each failed test with the command that repeats it alone ($logs/failures); the count
# is the last line ($logs/summary). A signal ends every stage with its children.
# `logs`, `passed`, `failed` and `stage_limit` are the caller's.

declare -a stage_names=() stage_costs=() stage_needs=() stage_commands=() table=() failures=()
declare -A state=() began=() index_of_pid=()
# Two that compute, on two cores, and two that wait beside them.
capacity=$((5 * $(nproc)))
busy=0

stage() {
    local cost
    case $2 in
        waits) cost=1 ;;
        half) cost=2 ;;
        core) cost=4 ;;
        *) die "no such cost: $2" ;;
    esac
    stage_names+=("$1")
    stage_costs+=("$cost")
    stage_needs+=("$3")
    state[$1]=waiting
    shift 3
    stage_commands+=("$(printf '%q ' "$@")")
}

# shellcheck disable=SC2154  # the caller's
log_of() { echo "$logs/${1// /-}.log"; }

# The failed tests of a log, one a line: `TEST<tab>COMMAND`. scripts/test-rust describes how to repeat a Rust test, and a script may say all of
# them by lines `again: TEST<tab>COMMAND`; others are repeated by the stage's script.
failures_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk -v repeat="$2" '
        /^again: / { said = said substr($0, 8) "\n"; next }
        /^== .*cargo test / { cargo = substr($0, 4) }
        /^test .* \.\.\. FAILED$/ && cargo { others = others $2 "\t" cargo " -- --exact " $2 "\n"; next }
        /^ *(FAILED|FAIL|not ok)[: ]/ { sub(/^ *(FAILED|FAIL|not ok)[: ]+/, ""); others = others substr($0, 1, 160) "\t" repeat "\n" }
        END { printf "%s", said != "" ? said : others }' | awk '!seen[$0]++'
}

# processor_seconds FILE: of a stage's processes, by what `times` of bash has written there; `?` if the stage was ended.
processor_seconds() {
    # The second line is that of the children: 1m2.345s 0m1.234s, of users' code and of the kernel.
    awk -F'[ms ]+' 'NR == 2 { printf "%.0f", $1 * 60 + $2 + $3 * 60 + $4 }' "$1" 2>/dev/null || echo '?'
}

# ended INDEX STATUS
ended() {
    local name=${stage_names[$1]} status=$2 log ok bad found
    log=$(log_of "$name")
    say "$name ($((SECONDS - began[$name])) s)"
    cat "$log"
    read -r ok bad < <(counts_of "$log")
    ((status == 0 || bad > 0)) || bad=1
    # shellcheck disable=SC2154  # the caller's. The numbers are those of `timeout`: by its first signal, and by its second.
    [[ $status != 124 && $status != 137 ]] || note "$name was ended: it may take $stage_limit s"
    finish "$1" "$ok" "$bad" "$(printf '%5d s %6s s of a core' $((SECONDS - began[$name])) "$(processor_seconds "$log.times")")"
    [[ ${state[$name]} == failed ]] || return 0
    found=$(failures_of "$log" "${stage_commands[$1]% }")
    [[ -n $found ]] || found="$name (exit status $status)"$'\t'"${stage_commands[$1]% }"
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

# Prints whether the stages that INDEX needs have passed: yes, no, or not known yet.
needs_met() {
    local need answer=yes open=0
    case ${stage_needs[$1]} in
        -) echo yes && return ;;
        '*')
            for need in "${state[@]}"; do
                [[ $need != running && $need != waiting ]] || ((++open))
            done
            # This one is waiting itself.
            ((open > 1)) && echo later || echo yes
            return
            ;;
    esac
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
            failures+=("$name (not run: what it needs has failed)"$'\t'"${stage_commands[at]% }")
        elif [[ $met == yes ]] && ((busy + stage_costs[at] <= capacity)); then
            ((busy += stage_costs[at]))
            state[$name]=running
            began[$name]=$SECONDS
            note "begins: $name"
            # A session of its own: a signal to it reaches all of its processes, and no terminal interrupts half of them.
            setsid timeout --kill-after=10 "$stage_limit" bash -c "${stage_commands[at]}; status=\$?; times > \"\$0\"; exit \$status" \
                "$(log_of "$name").times" > "$(log_of "$name")" 2>&1 < /dev/null &
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

# Leaves out every stage but the named ones and what these need.
only_stages() {
    local at name need
    local -A kept=()
    for name in "$@"; do
        [[ -n ${state[$name]-} ]] || die "no stage '$name': $(printf "'%s' " "${stage_names[@]}")"
        kept[$name]=1
    done
    # Needs are declared earlier.
    for ((at = ${#stage_names[@]} - 1; at >= 0; at--)); do
        name=${stage_names[at]}
        if [[ -z ${kept[$name]-} ]]; then
            state[$name]='left out'
        elif [[ ${stage_needs[at]} != [-*] ]]; then
            while IFS= read -r -d , need; do kept[$need]=1; done <<< "${stage_needs[at]},"
        fi
    done
}

run_stages() {
    local pid status at line
    mkdir -p "$logs"
    rm -f "$logs"/{summary,failures,*.log,*.times}
    (($# == 0)) || only_stages "$@"
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
    printf '    %s\n' "${table[@]}" >&2
    if ((${#failures[@]})); then
        for line in "${failures[@]}"; do printf '%s\n    %s\n' "${line%%$'\t'*}" "${line#*$'\t'}"; done > "$logs/failures"
        say "Failed, each with the command that repeats it alone"
        cat "$logs/failures"
    fi
    echo "$passed passed, $failed failed" | tee "$logs/summary"
    ((failed == 0))
}
