# SPDX-License-Identifier: Apache-2.0
# For live_ruby.sh: method call_F of class CF calls function F of C and nothing else, while the heap is
# compacted all the time, with garbage between what moves. See compact.py.
CALLS = { reverse: 'x' * 5000, sum: [1] * 5000, tr: 'y' * 5000, sort: (1..3000).to_a.reverse,
          unpack: 'z' * 5000, gcd: 3**2000, swapcase: 'w' * 5000, crypt: 'secret' }.freeze

SEVENS = 7**1500

CALLS.each_key do |f|
  args = { tr: "('a-y', 'b-z')", unpack: "('C*')", gcd: '(SEVENS)', crypt: "('ab')" }[f]
  eval("class C#{f}\n  def call_#{f}(x)\n    x.#{f}#{args}\n  end\nend")
end

def garbage
  eval("class Gone#{rand(50)}\n  def gone#{rand(1000)}\n    1\n  end\nend")
end

til = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_f
puts "ready #{Process.pid}"
$stdout.flush
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < til
  CALLS.each do |f, x|
    o = Object.const_get("C#{f}").new
    20.times { o.public_send("call_#{f}", x) }
    20.times { garbage }
  end
  GC.compact
end
