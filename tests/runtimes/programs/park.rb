# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: threads that wait, each at a known depth under another kind of call, and the
# interpreter's own account of them. Runs on Ruby 2.7 and up.
#
#   park.rb [-d DEPTH] [-n COPIES] [KIND...]     default: 10 calls deep, once each kind there is
#
# When all wait it prints one line and stays for 600 s:
#   {"runtime", "version", "pid", "threads": [{"name", "tid", "frames": [{"func": label, "name": base
#   label, "file", "line", "full": label with the method's class, "c": in C}, ... leaf first]}, ...]}
# That is every thread of the first ractor; the main thread waits too. Functions written in C stand
# with the place that called them, as Ruby shows them. Kind "ractor" (3.0 and up, not by default) waits
# in a second ractor as well, which tells of itself; "spin" (not by default) keeps one line busy.
require 'fiber'
require 'json'
require 'socket'

DEPTH = ARGV.include?('-d') ? ARGV.delete_at(ARGV.index('-d') + 1).to_i : 10
COPIES = ARGV.include?('-n') ? ARGV.delete_at(ARGV.index('-n') + 1).to_i : 1
STAY = 600
KINDS = {}
OPTIONAL = [:spin, :ractor]

def kind(name, &block)
  KINDS[name] = block
end

# --- how a thread waits ---------------------------------------------------------------------------

def forever
  sleep STAY
end

def descend(depth, &last)
  return descend(depth - 1, &last) if depth > 1
  yield
end

kind(:sleep) { descend(DEPTH) { sleep STAY } }
kind(:lock) { descend(DEPTH) { HELD.lock } }
kind(:synchronize) { descend(DEPTH) { HELD.synchronize { forever } } }
kind(:queue) { descend(DEPTH) { Queue.new.pop } }
kind(:sized_queue) { SizedQueue.new(1).tap { |q| q << 1 } << 2 }
kind(:condition) { m = Mutex.new; m.synchronize { descend(DEPTH) { ConditionVariable.new.wait(m) } } }
kind(:pipe) { r, w = IO.pipe; KEEP << w; descend(DEPTH) { r.read(1) } }
kind(:pipe_line) { r, w = IO.pipe; KEEP << w; r.each_line { |l| p l } }
kind(:select) { r, w = IO.pipe; KEEP << w; IO.select([r]) }
kind(:accept) { TCPServer.new('127.0.0.1', 0).accept }
kind(:join) { descend(DEPTH) { IDLE.join } }
kind(:stop) { Thread.stop }
kind(:deep) { descend(300) { forever } }
kind(:spin) { loop { nil } }

# --- under which calls ----------------------------------------------------------------------------

kind(:blocks) do
  1.times do
    [1].each do |x|
      { a: x }.each do |k, v|
        forever
      end
    end
  end
end

kind(:iterators) do
  [3].map { |x| (x..x).each_with_index { |y, i| y.step(9, 3) { [y].each_slice(1) { forever } } } }
end

kind(:sort_by) { [3, 1, 2].sort_by { |x| x == 2 ? forever : x } }
kind(:sort) { [3, 1, 2].sort { |a, b| forever } }
kind(:min_by) { [3, 1].min_by { |x| forever } }
kind(:inject) { [1, 2, 3].inject { |a, b| forever } }
kind(:method_reference) { [1].each(&method(:takes_one)) }
kind(:symbol_to_proc) { [Point.new].map(&:wait) }
kind(:lambda) { ->(x) { (->(y) { forever }).(x) }.call(1) }
kind(:proc) { proc { |x| proc { |y| forever }.call(x) }.call(1) }
kind(:define_method) { Point.new.defined_with_block(1) }
kind(:method_missing) { Point.new.nothing_of_this_name(1) }
kind(:send) { Point.new.public_send(:hidden_behind_send) }
kind(:singleton) { Point.of_class }
kind(:module_function) { Helper.helping }
kind(:included) { Point.new.helping_instance }
kind(:prepended) { Point.new.prepended }
kind(:super) { Below.new.above(1) }
kind(:initialize) { Point.new(:wait) }
kind(:operators) { Point.new + Point.new }
kind(:comparison) { [Point.new, Point.new].sort }
kind(:to_s) { "#{Point.new}" }
kind(:hash_key) { { Point.new => 1 } }
kind(:coerce) { 1 + Point.new }
kind(:each_of_enumerable) { Point.new.map { |x| forever } }
kind(:rescued) { begin; raise KeyError; rescue KeyError; forever; end }
kind(:ensured) { begin; raise KeyError; ensure; forever; end }
kind(:ensured_normally) { begin; 1; ensure; forever; end }
kind(:catching) { catch(:done) { [1].each { forever; throw :done } } }
kind(:evaluated) { eval("def from_text\n  forever\nend\n\nfrom_text") }
kind(:evaluated_with_name) { eval('forever', binding, 'no_such_file.rb', 4711) }
kind(:instance_eval) { Point.new.instance_eval { @x = 1; Object.new.instance_exec(1) { |x| forever } } }
kind(:class_body) { eval("class Object::Body\n  class << self\n    Object.send(:forever)\n  end\nend") }
kind(:fiber) { Fiber.new { Fiber.yield 1; Fiber.new { descend(3) { forever } }.resume }.tap(&:resume).resume }
kind(:enumerator) { Enumerator.new { |y| y << 1; forever }.tap(&:next).next }
kind(:lazy) { (1..3).lazy.map { |x| forever }.first(1) }
kind(:yielded) { yielding { |x| forever } }
kind(:optional_arguments) { with_arguments(1, b: 2) { forever } }
kind(:gsub) { 'abc'.gsub(/b/) { forever } }
kind(:hash_default) { Hash.new { |h, k| forever }[1] }
kind(:at_exit_like) { ObjectSpace.each_object(Class).first(1).each { forever } }
kind(:refined) { RefinedCall.call }
kind(:name_not_ascii) { grüße_вам }
kind(:name_long) { send(LONG) }
kind(:trace) { TracePoint.new(:call) { |t| forever if t.method_id == :takes_one }.enable { takes_one(1) } }

def takes_one(x)
  forever
end

def yielding
  yield 1
end

def with_arguments(a, *rest, b:, c: takes_none, **more, &block)
  block.call
end

def takes_none
  1
end

def grüße_вам
  forever
end

LONG = ('a_name_of_' + 'many_' * 60 + 'letters').to_sym
eval("def #{LONG}\n  forever\nend")

module Helper
  module_function

  def helping
    Object.send(:forever)
  end
end

module Included
  def helping_instance
    Object.send(:forever)
  end
end

module Prepended
  def prepended
    super
  end
end

class Point
  include Included
  include Enumerable
  prepend Prepended

  def initialize(x = nil)
    forever if x == :wait
  end

  define_method(:defined_with_block) { |x| forever }

  def wait
    forever
  end

  def self.of_class
    class << self
      def of_singleton
        new.wait
      end
    end
    of_singleton
  end

  def method_missing(name, *args)
    return super unless name == :nothing_of_this_name
    forever
  end

  def respond_to_missing?(name, all = false)
    name == :nothing_of_this_name
  end

  def hidden_behind_send
    forever
  end

  def prepended
    forever
  end

  def +(other)
    self[1]
  end

  def [](at)
    -self
  end

  def -@
    forever
  end

  def <=>(other)
    forever
  end

  def to_s
    forever
    ''
  end

  def hash
    forever
    1
  end

  def coerce(other)
    forever
  end

  def each
    yield 1
  end
end

class Above
  def above(x)
    Object.send(:forever)
  end
end

class Below < Above
  def above(x)
    super
  end
end

module Refining
  refine Integer do
    def refined
      Object.send(:forever)
    end
  end
end
using Refining

class RefinedCall
  def self.call
    1.refined
  end
end

# A ractor sees nothing of the others: it tells of itself, and waits on that very line.
def in_ractor
  Ractor.new(STAY) do |stay|
    tid = File.readlink('/proc/thread-self').split('/').last.to_i
    show = lambda do |places|
      places.map { |l| [l.label, l.base_label, l.path, l.lineno] }
    end
    deeper = lambda do |n|
      next deeper.(n - 1) if n > 1
      Ractor.yield([tid, show.(caller_locations(0))]); sleep stay
    end
    deeper.(3)
  end
end

# With the call that it waits in.
def ractor_frames(places)
  name = RUBY_VERSION >= '3.4' ? 'Kernel#sleep' : 'sleep'
  frames = [{ func: name, name: 'sleep', file: places[0][2], line: places[0][3], full: 'Kernel#sleep', c: true }]
  frames + places.map do |label, base, path, line|
    f = { func: label, name: base, file: path, line: line }
    owner, f[:c] = whose(f, [])
    f.merge(full: full_label(f, owner))
  end
end

# --- the account ----------------------------------------------------------------------------------

KEEP = []
HELD = Mutex.new

def thread_id
  File.readlink('/proc/thread-self').split('/').last.to_i
end

def account(thread)
  places = thread.backtrace_locations || []
  frames = places.map { |l| { func: l.label, name: l.base_label, file: l.path, line: l.lineno } }
  calls = (thread[:calls] || []).dup
  frames.reverse_each do |f|
    owner, f[:c] = whose(f, calls)
    f[:full] = full_label(f, owner)
  end
  frames
end

# Which class a frame's method belongs to, and whether it is in C. Methods by the calls that led here;
# what they do not have (blocks, clauses; what a trace point runs is not traced itself) by where it is.
def whose(frame, calls)
  if a_method?(frame)
    at = calls.index { |name, _, _| name == frame[:name].to_sym }
    return calls.slice!(0..at).last.drop(1) if at
  end
  at = METHODS.select { |name, file, line, _| name == frame[:name] && file == frame[:file] && line <= frame[:line] }
  return [at.max_by { |_, _, line, _| line }.last, false] unless at.empty?
  return [nil, false] unless a_method?(frame)
  [Object.instance_method(frame[:name]).owner, true] rescue [nil, false]
end

def a_method?(frame)
  frame[:func] !~ /\A(block|rescue|ensure)\b.* in |\A</ && frame[:func].end_with?(frame[:name])
end

# Since 3.4 Ruby's own labels have the class.
def full_label(frame, owner)
  return frame[:func] if RUBY_VERSION >= '3.4' || owner.nil? || !frame[:func].end_with?(frame[:name])
  frame[:func].delete_suffix(frame[:name]) + class_prefix(owner) + frame[:name]
end

def class_prefix(owner)
  return "#{owner.name}#" if owner.name
  of = owner.inspect[/\A#<Class:([A-Z][\w:]*)>\z/, 1]
  of ? "#{of}." : ''
end

# The calls that a thread, or the fiber that it runs, is in: [name, class, in C].
def follow_calls
  TracePoint.new(:call, :c_call, :return, :c_return) do |t|
    calls = Thread.current[:calls] ||= []
    case t.event
    when :call, :c_call then calls << [t.method_id, t.defined_class, t.event == :c_call]
    else calls.pop
    end
  end.enable
end

# Of this program: [name, file, line, class].
def methods_of(owner)
  (owner.instance_methods(false) + owner.private_instance_methods(false)).map do |name|
    file, line = owner.instance_method(name).source_location
    [name.to_s, file, line, owner]
  end
end

def asleep?(tid)
  File.read("/proc/self/task/#{tid}/stat")[/.*\) (.)/, 1] == 'S'
end

# Of all threads, when nothing differs between two looks and all sleep.
def accounts(threads, spinning)
  600.times do
    looks = 2.times.map do
      sleep 0.1
      threads.map { |_, t| t.thread_variable_get(:tid) ? account(t) : [] }
    end
    return looks[0] if looks[0] == looks[1] && looks[0].none?(&:empty?) &&
                       (spinning || threads.all? { |_, t| asleep?(t.thread_variable_get(:tid)) })
  end
  warn 'park.rb: the threads do not come to rest'
  exit! 1
end

def tell(threads, ractor, spinning)
  frames = accounts(threads, spinning)
  rows = threads.zip(frames).map do |(name, t), f|
    { name: name, tid: t.thread_variable_get(:tid), frames: f }
  end
  rows << ractor if ractor
  puts JSON.generate(runtime: 'ruby', version: RUBY_VERSION, pid: Process.pid, threads: rows)
  $stdout.flush
end

def stay
  sleep STAY
end

def start
  chosen = ARGV.reject { |a| a.start_with?('-') }.map(&:to_sym) & (KINDS.keys + OPTIONAL)
  chosen = KINDS.keys - OPTIONAL if chosen.empty?
  HELD.lock
  follow_calls
  Thread.current.thread_variable_set(:tid, thread_id)
  threads = [['main', Thread.current]]
  if chosen.include?(:join)
    Object.const_set(:IDLE, Thread.new { Thread.current.thread_variable_set(:tid, thread_id); Thread.stop })
    threads << ['idle', IDLE]
  end
  (chosen * COPIES).each do |name|
    next if name == :ractor
    threads << [name, Thread.new { Thread.current.thread_variable_set(:tid, thread_id); KINDS[name].call }]
  end
  if chosen.include?(:ractor)
    tid, places = in_ractor.take
    ractor = { name: 'ractor', tid: tid, frames: ractor_frames(places) }
  end
  Thread.new { tell(threads, ractor, chosen.include?(:spin)) }
  stay
  exit! 0
end

METHODS = ObjectSpace.each_object(Module).flat_map { |m| methods_of(m) + methods_of(m.singleton_class) }
                     .select { |_, file, _, _| file == __FILE__ }

start
