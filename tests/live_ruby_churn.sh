#!/bin/sh
# Calls along a known graph at full speed, sampled at 999 Hz from another CPU: no stack that the
# program cannot have, few refused, nearly all merged with the native stack.
# With compiled code the innermost frame may be marked as unsure, and is then not judged.
# CHURN_SECONDS=60 VERSIONS="ruby-3.3 ..." for more of it.
: "${B:=build}" "${CHURN_SECONDS:=10}"
runtime=ruby
. tests/live/runtimes.sh

cp $programs/churn.rb "$tmp/churn.rb" # as it is now, for the judge as well

for name in ${VERSIONS:-ruby-2.7 ruby-3.1 ruby-3.1-yjit ruby-3.3 ruby-3.4}; do
    wanted "$name" || continue
    churn "$name" "$tmp/churn.rb"
    echo "$(figures), innermost frame unsure $(judge unsure "$tmp/profile") %"
    # 2.7 makes a frame the innermost one a few instructions before it is filled in: one in some thousands.
    case $name in
    ruby-2.7*) awk '/^illegal/ { exit !($2 * 500 <= $4) }' "$tmp/verdict" && good=0 ;;
    esac
    legal
    check "merged-99-of-100-$name" at_least "$merged" 99
    check "few-refused-$name" at_least 0.5 "$refused"
done
