<?php #= {main}
# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: calls along a known graph at full speed, for judge.py. Runs on PHP 7.4 and up.
#
#   churn.php [SECONDS]   prints "ready PID" when it runs; 600 s
#   churn.php trace       2 s, printing the stack at each of many signals as judge.py reads them: PHP's
#                         own word that the marks are right. Needs the extensions pcntl and posix.
#
# The marks are those of churn.py.
#~ inner microtime __construct

const ITEMS = [3, 1, 4, 1, 5, 9, 2, 6];

function leaf($n) { #= leaf
	return $n + 1;
}

function recurse($n) { #= recurse
	if ($n)
		return recurse($n - 1) + 1; #> recurse
	return leaf($n); #> leaf
}

function even($n) { #= even
	return $n == 0 || odd($n - 1); #> odd
}

function odd($n) { #= odd
	return $n != 0 && even($n - 1); #> even
}

function counted($n) { #= counted
	for ($i = 0; $i < $n; $i++)
		yield leaf($i); #> leaf
	return $n;
}

function twice($n) { #= twice
	yield from counted($n); #> counted
	return yield from counted($n); #> counted
}

function drain($n) { #= drain
	foreach (twice($n) as $x) #> twice
		leaf($x); #> leaf
	foreach (counted($n) as $x) #> counted
		leaf($x); #> leaf
	iterator_to_array(twice($n), false); #> !iterator_to_array twice, twice
}

function totals() { #= totals
	$total = 0;
	while (true) {
		try {
			$got = yield $total;
			$total += leaf($got); #> leaf
		} catch (LogicException $e) {
			leaf($total); #> leaf
		}
	}
}

function feed($n) { #= feed
	$g = totals(); #> totals
	$g->current(); #> !current totals
	for ($i = 0; $i < $n; $i++)
		$g->send($i); #> !send totals
	$g->throw(new LogicException()); #> !throw totals
	unset($g); #> totals
}

function fall($n) { #= fall
	if (!$n)
		throw new RuntimeException('bottom');
	fall($n - 1); #> fall
}

function caught($n) { #= caught
	try {
		fall(5); #> fall
	} catch (RuntimeException $e) {
		leaf($n); #> leaf
	} finally {
		leaf($n); #> leaf
	}
}

function negated($x) { #= negated
	return -leaf($x); #> leaf
}

function added($a, $b) { #= added
	return leaf($a) + $b; #> leaf
}

function compared($a, $b) { #= compared
	return leaf($a) - leaf($b); #> leaf
}

function matched($m) { #= matched
	return leaf(0) . $m[0]; #> leaf
}

function callbacks() { #= callbacks
	$items = ITEMS;
	usort($items, 'compared'); #> !usort compared
	array_map('negated', $items); #> !array_map negated
	array_reduce($items, 'added', 0); #> !array_reduce added
	call_user_func('negated', 1); #> !call_user_func negated
	call_user_func_array('added', [1, 2]); #> !call_user_func_array added
	preg_replace_callback('/b/', 'matched', 'abcb'); #> !preg_replace_callback matched
	array_map(function ($x) { return leaf($x); }, $items); #> !array_map {closure}, {closure} -> leaf #= callbacks|{closure}
	array_filter($items, fn($x) => leaf($x)); #> !array_filter {closure}, {closure} -> leaf
	usort($items, fn($a, $b) => compared($a, $b)); #> !usort {closure}, {closure} -> compared
	array_map([new Point(1), 'distance'], $items); #> __construct, !array_map distance, __destruct #= callbacks
	array_map('Point::made', $items); #> !array_map made, __destruct, !array_map __destruct
	array_map(null, $items); #> !array_map
}

class Point implements ArrayAccess, IteratorAggregate, Countable, JsonSerializable { #= Point
	private $x;

	public function __construct($x) { #= __construct
		$this->x = leaf($x); #> leaf
	}

	public function distance() { #= distance
		return $this->distance_from_zero; #> __get
	}

	public static function made($x) { #= made
		return new static($x); #> __construct
	}

	public static function origin() { #= origin
		return self::made(0); #> made
	}

	public function __get($name) { #= __get
		return leaf($this->x); #> leaf
	}

	public function __set($name, $value) { #= __set
		$this->x = leaf($value); #> leaf
	}

	public function __isset($name) { #= __isset
		return leaf(0) == 1; #> leaf
	}

	public function __unset($name) { #= __unset
		leaf(0); #> leaf
	}

	public function __call($name, $args) { #= __call
		return leaf($args[0]); #> leaf
	}

	public static function __callStatic($name, $args) { #= __callStatic
		return leaf($args[0]); #> leaf
	}

	public function __toString() { #= __toString
		return 'point ' . leaf($this->x); #> leaf
	}

	public function __invoke($x) { #= __invoke
		return leaf($x); #> leaf
	}

	public function __clone() { #= __clone
		leaf(0); #> leaf
	}

	public function __destruct() { #= __destruct
		leaf(0); #> leaf
	}

	#[\ReturnTypeWillChange] #= offsetExists
	public function offsetExists($at) {
		return leaf($at) > 0; #> leaf
	}

	#[\ReturnTypeWillChange] #= offsetGet
	public function offsetGet($at) {
		return leaf($at); #> leaf
	}

	#[\ReturnTypeWillChange] #= offsetSet
	public function offsetSet($at, $value) {
		leaf($value); #> leaf
	}

	#[\ReturnTypeWillChange] #= offsetUnset
	public function offsetUnset($at) {
		leaf($at); #> leaf
	}

	#[\ReturnTypeWillChange] #= getIterator
	public function getIterator() {
		return counted(2); #> counted
	}

	#[\ReturnTypeWillChange] #= count
	public function count() {
		return leaf(1); #> leaf
	}

	#[\ReturnTypeWillChange] #= jsonSerialize
	public function jsonSerialize() {
		return leaf(1); #> leaf
	}
}

function magic($n) { #= magic
	$p = new Point($n); #> __construct
	$q = Point::origin(); #> origin
	$p->distance(); #> distance
	$p->something = 3; #> __set
	isset($p->something); #> __isset
	unset($p->something); #> __unset
	$p->anything($n); #> !anything __call
	Point::whatever($n); #> !whatever __callStatic
	$s = "$p and $q"; #> __toString
	$p($n); #> __invoke
	$r = clone $p; #> __clone
	isset($p[1]); #> offsetExists
	$p[1] = $p[2]; #> offsetGet, offsetSet
	unset($p[1]); #> offsetUnset
	foreach ($p as $x) #> getIterator, counted
		leaf($x); #> leaf
	count($p); #> !count count, count
	json_encode([$p, $q]); #> !json_encode jsonSerialize
	unset($p); #> __destruct
	unset($q); #> __destruct
	$r = null; #> __destruct
}

trait Shared { #= Shared
	public function of_trait($n) { #= of_trait
		return leaf($n); #> leaf
	}
}

abstract class Above { #= Above
	public function of_parent($n) { #= of_parent
		return static::of_child($n); #> of_child
	}
}

class Below extends Above { #= Below
	use Shared;

	public static function of_child($n) { #= of_child
		return (new self)->of_trait($n); #> of_trait
	}
}

function nested($n) { #= nested
	$deeper = function ($m) use ($n) { #= nested|{closure}
		return leaf($m + $n); #> {closure} -> leaf #= {closure}
	}; #= nested|{closure}
	$within = static function ($m) use ($deeper) { #= nested|{closure}
		return $deeper($m); #> {closure} -> {closure} #= {closure}
	}; #= nested|{closure}
	$again = Closure::fromCallable('leaf'); #> !fromCallable #= nested
	return $within($n) + $again($n); #> {closure}, leaf
}

function in_fiber($n) { #= in_fiber
	leaf($n); #> leaf
	Fiber::suspend($n); #> !suspend
	deep_in_fiber($n); #> deep_in_fiber
}

function deep_in_fiber($n) { #= deep_in_fiber
	leaf($n); #> leaf
	Fiber::suspend($n); #> !suspend
	leaf($n); #> leaf
}

function fibers($n) { #= fibers
	$f = new Fiber('in_fiber');
	$f->start($n); #> !start in_fiber
	$f->resume(); #> !resume in_fiber
	$f->resume(); #> !resume in_fiber
}

function round_of_calls($n) { #= round_of_calls
	recurse(40); #> recurse
	even(10); #> even
	drain(3); #> drain
	feed(3); #> feed
	caught($n); #> caught
	callbacks(); #> callbacks
	magic($n); #> magic
	(new Below)->of_parent($n); #> of_parent
	nested($n); #> nested
	if (PHP_VERSION_ID >= 80100)
		fibers($n); #> fibers
}

function work($until) { #= work
	while (microtime(true) < $until)
		round_of_calls(3); #> round_of_calls
}

# The stack at this moment, without this function: where a function is stands in the entry of the one
# that it called.
function tell() { #= tell
	$stack = debug_backtrace();
	$frames = [];
	$at = $stack[0];
	foreach (array_slice($stack, 1) as $call) {
		$name = isset($call['class']) ? $call['class'] . '::' . $call['function'] : $call['function'];
		$frames[] = ['func' => $name, 'file' => $at['file'] ?? null, 'line' => $at['line'] ?? 0];
		$at = $call;
	}
	$frames[] = ['func' => '{main}', 'file' => $at['file'] ?? null, 'line' => $at['line'] ?? 0];
	echo json_encode(['frames' => $frames]), "\n";
}

function trace() { #= trace
	$parent = getmypid();
	pcntl_async_signals(true);
	pcntl_signal(SIGUSR1, 'tell');
	$child = pcntl_fork();
	for ($i = 0; !$child && $i < 4000 && posix_kill($parent, SIGUSR1); $i++)
		usleep(500);
	if (!$child)
		exit;
	while (!pcntl_waitpid($child, $status, WNOHANG)) #> !pcntl_waitpid
		round_of_calls(3); #> round_of_calls
}

function start($args) { #= start
	if (($args[1] ?? '') == 'trace') {
		trace(); #> trace
		return;
	}
	echo 'ready ', getmypid(), "\n";
	@ob_flush(); #> !ob_flush
	flush(); #> !flush
	work(microtime(true) + (float)($args[1] ?? 600)); #> work
}

set_time_limit(0); #= {main}
start($argv ?? []); #> start
