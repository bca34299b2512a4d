# What goes into a guest's initramfs; sourced by run.sh and by tests/fixtures/guest_arm64.sh.

# libraries ROOT TRIPLE FILE: what a program needs, by name; no loader runs, so of any architecture.
libraries() {
    for l in $(readelf -d "$3" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') \
        $(readelf -lW "$3" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p'); do
        case $l in /*) to=$1$l ;; *) to=$1/lib/$2/$l ;; esac
        [ -e "$to" ] && continue
        from=/lib/$2/$(basename "$l")
        [ -e "$from" ] || from=/usr/lib/$2/$(basename "$l")
        mkdir -p "$(dirname "$to")"
        cp -L "$from" "$to" || exit 1
        libraries "$1" "$2" "$to"
    done
}

pack() { (cd "$1" && find . | cpio -o -H newc --quiet) >"$2" || exit 1; }

# put FILE ROOT TRIPLE: a program with its libraries, without what only a debugger reads.
put() {
    "$3-strip" -g -o "$2/t/$(basename "$1")" "$1" || exit 1
    libraries "$2" "$3" "$1"
}
