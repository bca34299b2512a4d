#!/bin/sh
# Calls along a known graph at full speed, sampled at 999 Hz from another CPU, without a JIT and with
# the tracing one: no stack that the program cannot have, few refused, nearly all merged with the
# native stack. CHURN_SECONDS=60 VERSIONS="php-8.4 php-8.4-jit ..." for more of it.
: "${B:=build}" "${CHURN_SECONDS:=8}"
runtime=php
. tests/live/runtimes.sh

cp $programs/churn.php "$tmp/churn.php" # as it is now, for the judge as well
touch -d '1 hour ago' "$tmp/churn.php"  # what was written just now is not compiled

for name in ${VERSIONS:-php-7.4 php-8.2 php-8.3 php-8.4 php-8.5 php-8.6 php-8.4-zts \
    php-8.2-jit php-8.3-jit php-8.4-jit php-8.5-jit php-8.6-jit}; do
    wanted "$name" || continue
    churn "$name" "$tmp/churn.php" -e cpu,php_wall
    echo "$(figures); $(judge marks "$tmp/profile")"
    legal
    # While the program changes to another stack, the list and the native one are of two; and where C
    # was called by compiled code the native one may end there.
    check "merged-98-of-100-$name" at_least "$merged" 98
    check "few-refused-$name" at_least 0.5 "$refused"
done
