# SPDX-License-Identifier: Apache-2.0
# For live_ruby.sh: keeps a CPU busy in blocks that functions in C call, in a C extension, in a
# fiber and in singleton methods, for so many seconds.
require 'zlib'
require 'fiber'

module Shop
  class Cart
    def self.build
      new.tap { |cart| cart.fill }
    end

    def fill
      @items = (1..20).to_a
    end

    def total
      @items.sort_by { |x| price(x) }
    end

    def price(x)
      n = 0
      300.times { n += x }
      n
    end

    def pack
      Zlib.deflate(TEXT)
    end

    def fiber
      Fiber.new { price(1); Fiber.yield; price(2) }.tap(&:resume).resume
    end
  end
end

TEXT = Random.new(1).bytes(1 << 16)
til = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_f
puts "ready #{Process.pid}"
$stdout.flush
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < til
  cart = Shop::Cart.build
  40.times { cart.total }
  cart.pack
  400.times { cart.fiber }
end
