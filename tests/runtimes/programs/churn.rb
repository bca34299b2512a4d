# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: calls along a known graph at full speed, for judge.py. Runs on Ruby 2.7 and up.
#
#   churn.rb [SECONDS [THREADS]]   prints "ready PID" when it runs; 600 s, the main thread alone
#   churn.rb trace                 once, printing the stack at each step as judge.py reads them, then
#                                  some of threads at full speed: the interpreter's own word that the
#                                  marks below are right
#
# The marks are those of churn.py.
#~ base block in fibers
#~ base block (2 levels) in watch
#~ base block (2 levels) in start
#~ inner != == < > + - * === disable length size succ lambda to_proc block_given?
#= <main>
require 'json'

ITEMS = [3, 1, 4, 1, 5, 9, 2, 6].freeze

def leaf(n) #= leaf
  n + 1
end

def recurse(n) #= recurse
  return recurse(n - 1) + 1 if n > 0 #> recurse
  leaf(n) #> leaf
end

def even(n) #= even
  n == 0 || odd(n - 1) #> odd
end

def odd(n) #= odd
  n != 0 && even(n - 1) #> even
end

def yielder(n) #= yielder
  yield leaf(n) #> leaf, block in blocks, block (2 levels) in blocks
  yield n #> block in blocks, block (2 levels) in blocks
end

def blocks(n) #= blocks
  yielder(n) { |x| leaf(x) } #> yielder, block in blocks -> leaf #= blocks|block in blocks
  yielder(n) do |x| #> yielder #= blocks|block in blocks
    yielder(x) do |y| #> block in blocks -> yielder #= block in blocks|block (2 levels) in blocks
      leaf(y) #> block (2 levels) in blocks -> leaf #= block (2 levels) in blocks
    end #= block in blocks|block (2 levels) in blocks
  end #= blocks|block in blocks
end #= blocks

def iterators #= iterators
  # In Ruby's own functions that are written in Ruby a block is called by way of more frames than here.
  3.times { |i| leaf(i) } #> !times block in iterators, block in iterators -> leaf #= iterators|block in iterators
  ITEMS.each { |x| leaf(x) } #> !each block in iterators, block in iterators -> leaf
  ITEMS.map { |x| leaf(x) } #> !map block in iterators, block in iterators -> leaf
  ITEMS.select { |x| leaf(x) } #> !select block in iterators, block in iterators -> leaf
  ITEMS.sort_by { |x| leaf(x) } #> !sort_by !each block in iterators, block in iterators -> leaf
  ITEMS.sort { |a, b| leaf(a) - leaf(b) } #> !sort block in iterators, block in iterators -> leaf
  ITEMS.inject { |a, b| leaf(a) + b } #> !inject !each block in iterators, block in iterators -> leaf
  ITEMS.each_with_index { |x, i| leaf(i) } #> !each_with_index !each block in iterators, block in iterators -> leaf
  ITEMS.each_slice(3) { |x| leaf(1) } #> !each_slice !each block in iterators, block in iterators -> leaf
  { 1 => 2 }.each_pair { |k, v| leaf(v) } #> !each_pair block in iterators, block in iterators -> leaf
  ITEMS.map(&method(:leaf)) #> !method, !map leaf
  [[1]].map(&:first) #> !map !first
  'abcb'.gsub(/b/) { |m| m * leaf(1) } #> !gsub block in iterators, block in iterators -> leaf
end #= iterators

def fall(n) #= fall
  raise KeyError, 'bottom' if n == 0 #> !raise !exception !initialize !initialize, !raise !backtrace, !===, !raise !new !initialize
  fall(n - 1) #> fall
end

# A rescue or ensure clause that an exception leads to is a function of its own, called from the line
# that the exception came through or from the clause; some releases do not show it.
def caught(n) #> caught -> rescue in caught #= caught
  fall(5) #> fall, rescue in caught, ensure in caught
rescue KeyError #> !===, rescue in caught, rescue in caught -> !=== #= caught|rescue in caught
  leaf(n) #> leaf, rescue in caught, rescue in caught -> leaf
ensure #= caught|ensure in caught|rescue in caught
  leaf(n) #> leaf, ensure in caught, ensure in caught -> leaf #= caught|ensure in caught
end #= caught

def ensured(n) #> ensured -> ensure in ensured #= ensured
  begin
    fall(n) #> fall, ensure in ensured
  ensure
    leaf(n) #> leaf, ensure in ensured, ensure in ensured -> leaf #= ensured|ensure in ensured
  end #= ensured
end

def unwound(n) #> unwound -> rescue in unwound #= unwound
  ensured(n) #> ensured, rescue in unwound
rescue KeyError #> !===, rescue in unwound, rescue in unwound -> !=== #= unwound|rescue in unwound
  leaf(n) #> leaf, rescue in unwound, rescue in unwound -> leaf
end #= unwound

def thrown(n) #= thrown
  catch(:done) do #> !catch block in thrown #= thrown|block in thrown
    ITEMS.each do |x| #> block in thrown -> !each block (2 levels) in thrown #= block in thrown|block (2 levels) in thrown
      throw :done, leaf(x) if x == 4 #> block (2 levels) in thrown -> leaf, block (2 levels) in thrown -> !throw, block (2 levels) in thrown -> !== #= block (2 levels) in thrown
    end #= block in thrown|block (2 levels) in thrown
  end #= thrown|block in thrown
end #= thrown

def lambdas(n) #= lambdas
  l = ->(x) { leaf(x) } #> !lambda, block in lambdas -> leaf #= lambdas|block in lambdas
  m = proc { |x| l.call(x) } #> !proc, block in lambdas -> block in lambdas
  m.call(n) #> block in lambdas
  m.(n) #> block in lambdas
end #= lambdas

def fibers(n) #= fibers
  f = Fiber.new do |x| #> !new !initialize #= fibers|block in fibers
    leaf(x) #> block in fibers -> leaf #= block in fibers
    in_fiber(Fiber.yield(x)) #> block in fibers -> !yield, block in fibers -> in_fiber
    leaf(x) #> block in fibers -> leaf
  end #= fibers|block in fibers
  f.resume(n) #> !resume #= fibers
  f.resume(n) #> !resume
  f.resume(n) #> !resume
end

def in_fiber(n) #= in_fiber
  leaf(n) #> leaf
  Fiber.yield(n) #> !yield
  leaf(n) #> leaf
end

class Point #= Point
  include Comparable

  attr_reader :x

  def initialize(x) #= initialize
    @x = leaf(x) #> leaf
  end

  def self.origin #= origin
    new(0) #> !new initialize, initialize
  end

  def distance #= distance
    self - self #> -
  end

  def -(other) #= -
    leaf(x - other.x) #> leaf, -
  end

  def <=>(other) #= <=>
    leaf(x) - other.x #> leaf
  end

  def ==(other) #= ==
    leaf(x) == other.x #> leaf
  end

  def to_s #= to_s
    "point #{leaf(x)}" #> leaf, to_s, !to_s
  end

  def hash #= hash
    leaf(1) #> leaf
  end

  def eql?(other) #= eql?
    leaf(x) == other.x #> leaf
  end

  def coerce(other) #= coerce
    [Point.new(other), self] #> !new initialize, initialize
  end

  def [](at) #= []
    leaf(at) #> leaf
  end

  def []=(at, value) #= []=
    leaf(value) #> leaf
  end

  def call(n) #= call
    leaf(n) #> leaf
  end

  def method_missing(name, *args) #= method_missing
    leaf(args[0]) #> leaf, ![]
  end

  def respond_to_missing?(name, all = false) #= respond_to_missing?
    leaf(1) == 1 #> leaf
  end

  def sent(n) #= sent
    leaf(n) #> leaf
  end

  define_method(:defined) { |n| leaf(n) } #> block in <class:Point> -> leaf #= <class:Point>|block in <class:Point>

  private #= <class:Point>

  def hidden(n) #= hidden
    leaf(n) #> leaf
  end
end

class Below < Point #= <class:Below>
  def initialize(x) #= initialize
    super(x) #> initialize
  end

  def sent(n) #= sent
    super #> sent
  end
end

def magic(n) #= magic
  p = Point.new(n) #> !new initialize, initialize
  q = Point.origin #> origin
  p.distance #> distance
  p - q #> -
  p < q #> !< <=>, <=>
  [p, q].sort #> !sort <=>
  [p, q].max #> !max <=>
  p == q #> ==
  "#{p} #{q}" #> to_s
  { p => 1 }[Point.new(n)] #> hash, eql?, !new initialize, initialize, ![] hash, ![] eql?
  1 - p rescue leaf(n) #> !- coerce, !- -, coerce, -
  p[1] = p[2] #> [], []=
  p.(n) #> call
  p.nothing(n) #> method_missing, !method_missing method_missing
  p.respond_to?(:nothing) #> !respond_to? respond_to_missing?, respond_to_missing?
  p.public_send(:sent, n) #> !public_send sent, sent
  p.send(:hidden, n) #> !send hidden, !__send__ hidden, hidden
  p.defined(n) #> block in <class:Point>
  Below.new(n).sent(n) #> !new initialize, initialize, sent
  p.instance_eval { leaf(n) } #> !instance_eval block in magic, block in magic -> leaf #= magic|block in magic
  p.tap { |x| leaf(n) } #> !tap block in magic, block in magic -> leaf
end #= magic

def round_of_calls(n) #= round_of_calls
  recurse(40) #> recurse
  even(10) #> even
  blocks(n) #> blocks
  iterators #> iterators
  caught(n) #> caught, rescue in caught, ensure in caught
  unwound(n) #> unwound, rescue in unwound
  thrown(n) #> thrown
  lambdas(n) #> lambdas
  fibers(n) #> fibers
  magic(n) #> magic
end

def work(til) #= work
  round_of_calls(3) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < til #> !clock_gettime, round_of_calls
end

def show(places) #= show
  puts JSON.generate(frames: places.map { |l| { func: l.label, file: l.path, line: l.lineno } })
end

def trace #= trace
  steps = [:line, :call, :return, :b_call, :b_return, :c_call, :c_return]
  own = false
  point = TracePoint.new(*steps) do
    next if own
    own = true
    show(caller_locations(1))
    own = false
  end
  point.enable
  round_of_calls(3) #> round_of_calls
  point.disable
end

def watch(stacks) #= watch
  til = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
  threads = Array.new(2) { Thread.new { work(til) } } #> block (2 levels) in watch -> work #= watch|block (2 levels) in watch
  (stacks / 2).times do #= watch
    sleep 0.001
    threads.each { |t| show(t.backtrace_locations) if t.alive? }
  end
end

def start(args) #= start
  if args[0] == 'trace'
    trace #> trace
    watch(100)
    $stdout.flush
    exit!
  end
  til = Process.clock_gettime(Process::CLOCK_MONOTONIC) + (args[0] || 600).to_f
  ((args[1] || 1).to_i - 1).times { Thread.new { work(til) } } #> block (2 levels) in start -> work #= start|block (2 levels) in start
  puts "ready #{Process.pid}" #= start
  $stdout.flush
  work(til) #> work
end

start(ARGV) #> start #= <main>
