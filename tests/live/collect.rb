# SPDX-License-Identifier: Apache-2.0
# For live_ruby_gc.sh: collect.rb MODE SECONDS. Keeps a CPU or two busy, part of the time with collecting
# garbage, and says every half second how much of its time on CPUs that was so far, in per cent:
# "share NUMBER", by its own clocks.
#   full     GC.start and other work in turns, both timed; none is collected but there
#   alloc    garbage that Ruby collects as it likes, timed by Ruby (GC.total_time, 3.1 and later)
#   off      works and makes garbage that is never collected
#   threads  a thread as with full, beside one that computes in C without Ruby's lock, and collects never
#   fiber    as full, in a fiber
#   ractors  a ractor as with alloc, beside one that computes without making garbage
require 'openssl'

CPU = Process::CLOCK_THREAD_CPUTIME_ID

def now(clock = Process::CLOCK_MONOTONIC)
  Process.clock_gettime(clock)
end

TIL = now + ARGV[1].to_f

def say(share)
  $told ||= now
  return if now - $told < 0.5

  $told = now
  puts "share %.2f" % (100.0 * share)
  $stdout.flush
end

def work
  n = 0
  i = 0
  while i < 200_000
    n += i & 7
    i += 1
  end
  n
end

def collect
  GC.start
end

def garbage
  2000.times { |i| $kept[rand(20_000)] = [i.to_s * 3, i] }
end

def full
  GC.disable
  collecting = working = 0.0
  while now < TIL
    a = now(CPU)
    collect
    b = now(CPU)
    3.times { work }
    collecting += b - a
    working += now(CPU) - b
    yield collecting / (collecting + working)
  end
end

def alloc
  first = now(Process::CLOCK_PROCESS_CPUTIME_ID)
  before = GC.total_time
  while now < TIL
    20.times { garbage }
    work
    say((GC.total_time - before) / 1e9 / (now(Process::CLOCK_PROCESS_CPUTIME_ID) - first))
  end
end

def off
  GC.disable
  while now < TIL
    work
    50.times { |i| i.to_s }
    say(0)
  end
end

# The library looks for primes without Ruby's lock.
def seek
  OpenSSL::PKey::RSA.new(4096) while now < TIL
end

def threads
  other = Thread.new { seek }
  full { |share| say(share) }
  other.join
end

def compute(til)
  work while Process.clock_gettime(Process::CLOCK_MONOTONIC) < til
end

def ractors
  other = Ractor.new(TIL) { |til| compute(til) }
  alloc
  other
end

$kept = Array.new(20_000) { |i| [i.to_s, i] }
# Something to mark.
$more = Array.new(100_000) { |i| i.to_s }
puts "ready"
$stdout.flush
case ARGV[0]
when 'full' then full { |share| say(share) }
when 'fiber' then Fiber.new { full { |share| say(share) } }.resume
else send(ARGV[0])
end
