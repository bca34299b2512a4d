<?php
# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: one long stack that passes through every kind of call and waits, and PHP's own
# account of it. Runs on PHP 7.4 and up, in every SAPI.
#
#   park.php [-d DEPTH] [-w WAIT] [KIND...]    default: 10 calls of recursion, sleep, all kinds in turn
#   WAIT: sleep, usleep, fread, select, flock, spin (a busy loop on one line)
#   Without a command line (php-fpm) the query string has them: ?d=3&w=spin&kinds=generator,fiber
#
# When it waits it has printed one line, and stays for 600 s:
#   {"runtime", "version", "sapi", "pid", "threads": [{"name": "main", "tid", "frames": [{"func":
#   "Class::name", "name", "file", "line", "inner": true for PHP's own functions}, ... leaf first]}]}
# Code of a file that another one includes has the name "include", of a string "eval".

const STAY = 600;

$depth = 10;
$wait = 'sleep';
$chosen = [];

function next_kind() {
	global $chosen;
	$kind = array_shift($chosen);
	return $kind ? $kind() : bottom();
}

# --- how it waits: the account and the wait on one line, so that the account holds ----------------

function bottom() {
	global $wait;
	$wait = 'wait_' . $wait;
	$wait();
}

function wait_sleep() {
	tell('sleep'); sleep(STAY);
}

function wait_usleep() {
	tell('usleep'); usleep(STAY * 1000000);
}

function wait_fread() {
	$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
	stream_set_timeout($pair[0], STAY);
	tell('fread'); fread($pair[0], 1);
}

function wait_select() {
	$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
	$read = [$pair[0]];
	$none = null;
	tell('stream_select'); stream_select($read, $none, $none, STAY);
}

function wait_flock() {
	$path = tempnam(sys_get_temp_dir(), 'park');
	$mine = fopen($path, 'r');
	$other = fopen($path, 'r');
	unlink($path);
	flock($mine, LOCK_EX);
	tell('flock'); flock($other, LOCK_EX);
}

function wait_spin() {
	$until = time() + STAY;
	tell(null); for ($i = 0; $i >= 0; $i++) if (($i & 0xfffffff) == 0xfffffff && time() > $until) return;
}

# --- the kinds ------------------------------------------------------------------------------------

function recursion() {
	global $depth;
	return descend($depth);
}

function descend($n) {
	if ($n > 1)
		return descend($n - 1);
	return next_kind();
}

function closure() {
	$captured = 1;
	$inner = function () use ($captured) {
		return next_kind();
	};
	return (function () use ($inner) {
		return $inner();
	})();
}

function arrow() {
	return (fn() => (static fn() => next_kind())())();
}

function array_mapped() {
	return array_map(function ($x) {
		return $x == 2 ? next_kind() : $x;
	}, [1, 2, 3]);
}

function sorted() {
	$items = [3, 1, 2];
	usort($items, 'compare');
}

function compare($a, $b) {
	next_kind();
	return $a - $b;
}

function called() {
	call_user_func_array(Closure::fromCallable('called_by_name'), [1]);
}

function called_by_name($x) {
	call_user_func('next_kind');
}

function replaced() {
	preg_replace_callback('/b/', function ($m) {
		return next_kind();
	}, 'abc');
}

trait Shared {
	public function of_trait() {
		next_kind();
	}
}

abstract class Above {
	abstract public function of_child();

	public function of_parent() {
		return $this->of_child();
	}
}

class Point extends Above implements JsonSerializable {
	use Shared;

	private $step;

	public function __construct($step = '') {
		$this->step = $step;
		if ($step == 'construct')
			next_kind();
	}

	public function __destruct() {
		if ($this->step == 'destruct')
			next_kind();
	}

	public function of_child() {
		return static::of_class();
	}

	public static function of_class() {
		return (new self)->of_trait();
	}

	public function __get($name) {
		return $this->set = $name;
	}

	public function __set($name, $value) {
		return $this->anything(1);
	}

	public function __call($name, $args) {
		return without_object();
	}

	public static function __callStatic($name, $args) {
		return (string)new self;
	}

	public function __toString() {
		$this();
		return '';
	}

	public function __invoke() {
		return isset($this->something);
	}

	public function __isset($name) {
		return next_kind() == 1;
	}

	#[\ReturnTypeWillChange]
	public function jsonSerialize() {
		return next_kind();
	}
}

function without_object() {
	return Point::whatever(1);
}

function methods() {
	return (new Point)->of_parent();
}

function magic() {
	return (new Point)->nothing;
}

function constructor() {
	return new Point('construct');
}

function destructor() {
	$p = new Point('destruct');
	unset($p);
}

function anonymous_class() {
	return (new class {
		public function method() {
			return next_kind();
		}
	})->method();
}

function serialized() {
	return json_encode([new Point]);
}

function yielding() {
	yield 1;
	yield next_kind();
}

function generator() {
	foreach (yielding() as $x)
		;
}

function yielding_from($n) {
	yield $n;
	if ($n > 1)
		yield from yielding_from($n - 1);
	else
		yield next_kind();
}

function generator_chain() {
	global $depth;
	foreach (yielding_from($depth) as $x)
		;
}

function echoing() {
	while (true)
		if ((yield) == 2)
			next_kind();
}

function generator_sent_to() {
	$g = echoing();
	$g->send(1);
	$g->send(2);
}

function iterated() {
	iterator_to_array(yielding());
}

function exception_handler() {
	try {
		throw new LogicException();
	} catch (LogicException $e) {
		try {
			return 1;
		} finally {
			next_kind();
		}
	}
}

# While an exception waits for this to end, not every kind of call is possible: it goes alone.
function exception_waiting() {
	try {
		throw new RuntimeException();
	} finally {
		next_kind();
	}
}

function error_handler() {
	set_error_handler(function ($number, $text) {
		restore_error_handler();
		next_kind();
		return true;
	});
	trigger_error('no error');
}

function autoload() {
	spl_autoload_register('load_class');
	class_exists('NeverThere');
}

function load_class($name) {
	if ($name == 'NeverThere')
		next_kind();
}

function included() {
	$path = tempnam(sys_get_temp_dir(), 'park');
	file_put_contents($path, "<?php\n\nfunction from_file() {\n\tunlink(__FILE__);\n\tnext_kind();\n}\n\nfrom_file();\n");
	include $path;
}

function evaluated() {
	eval("function from_text() {\n\tnext_kind();\n}\n\nfrom_text();\n");
}

function größe_функция() {
	next_kind();
}

function fiber() {
	$f = new Fiber(function ($n) {
		Fiber::suspend(1);
		in_fiber();
	});
	$f->start(1);
	$f->resume(2);
}

function in_fiber() {
	$g = new Fiber('next_kind');
	$g->start();
}

const KINDS = ['recursion', 'fiber', 'closure', 'arrow', 'array_mapped', 'sorted', 'called', 'replaced', 'methods',
	'magic', 'constructor', 'destructor', 'anonymous_class', 'serialized', 'generator',
	'generator_chain', 'generator_sent_to', 'iterated', 'exception_handler', 'error_handler', 'autoload',
	'included', 'evaluated', 'größe_функция'];

# --- the account ----------------------------------------------------------------------------------

function thread_id() {
	$self = explode('/', (string)@readlink('/proc/thread-self'));
	return (int)end($self);
}

# debug_backtrace() has each function with the place that called it: a function's own place stands in
# the entry of the one that it called. $inner is what the caller of this function calls next.
function tell($inner) {
	$stack = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
	$frames = $inner ? [['func' => $inner, 'name' => $inner, 'file' => null, 'line' => 0, 'inner' => true]] : [];
	$at = array_shift($stack);
	$stack[] = ['function' => '{main}'];
	foreach ($stack as $call) {
		$name = $call['function'];
		$frame = ['func' => isset($call['class']) ? $call['class'] . '::' . $name : $name,
			'name' => $name, 'file' => $at['file'] ?? null, 'line' => $at['line'] ?? 0];
		if (!isset($at['file']))
			$frame['inner'] = true;
		$frames[] = $frame;
		$at = $call;
	}
	echo json_encode(['runtime' => 'php', 'version' => PHP_VERSION, 'sapi' => PHP_SAPI,
		'pid' => getmypid(), 'threads' => [['name' => 'main', 'tid' => thread_id(), 'frames' => $frames]]],
		JSON_UNESCAPED_SLASHES), "\n";
	while (ob_get_level())
		ob_end_flush();
	flush();
}

function choose($args) {
	global $depth, $wait, $chosen;
	$depth = (int)($_GET['d'] ?? $depth);
	$wait = preg_replace('/\W/', '', $_GET['w'] ?? $wait);
	$chosen = array_filter(explode(',', $_GET['kinds'] ?? ''));
	for ($i = 1; $i < count($args); $i++)
		if ($args[$i] == '-d')
			$depth = (int)$args[++$i];
		elseif ($args[$i] == '-w')
			$wait = $args[++$i];
		else
			$chosen[] = $args[$i];
	$chosen = array_intersect($chosen, array_merge(KINDS, ['exception_waiting'])) ?: KINDS;
	if (PHP_VERSION_ID < 80100)
		$chosen = array_diff($chosen, ['fiber']);
}

set_time_limit(0);
choose($argv ?? []);
next_kind();
