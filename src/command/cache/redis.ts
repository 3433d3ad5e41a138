/**
 * Redis as the command cache, through the user's own client: `ioredis` or `redis`, taken by shape.
 *
 * Each call is one script, so that looking and setting cannot be torn apart. Whatever Redis does (evict, flush, fail over, lose
 * an acknowledged write), commands stay correct; only repeats get slower. A client that loses Redis never ends the process.
 */
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import type { CommandCache } from './cache.ts'

/** The part of an `ioredis` client we use. */
export interface IoRedisClient {
  on?(event: 'error', listener: (error: Error) => void): unknown
  eval(script: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown>
}

/** The part of a client of the `redis` package we use. */
export interface NodeRedisClient {
  on?(event: 'error', listener: (error: Error) => void): unknown
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>
}

export interface RedisCacheOptions {
  /** Put before every key. @default 'waybill:command:' */
  readonly prefix?: string
}

/** For a client of the `ioredis` package. */
export function ioredisCache(client: IoRedisClient, options: RedisCacheOptions = {}): CommandCache {
  hear(client)
  return scriptedCache((script, key, args) => client.eval(script, 1, key, ...args), options)
}

/** For a client of the `redis` package. */
export function nodeRedisCache(client: NodeRedisClient, options: RedisCacheOptions = {}): CommandCache {
  hear(client)
  return scriptedCache((script, key, args) => client.eval(script, { keys: [key], arguments: args }), options)
}

/** A client that loses its connection, and has no listener, ends the process. The calls that failed tell the commands. */
function hear(client: IoRedisClient | NodeRedisClient): void {
  client.on?.('error', () => undefined)
}

const claimScript = `
local found = redis.call('get', KEYS[1])
if found then return found end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return false`

const completeScript = `
local found = redis.call('get', KEYS[1])
if not found or found == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) end
return 1`

const releaseScript = `
if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end
return 1`

type RunScript = (script: string, key: string, args: string[]) => Promise<unknown>

function scriptedCache(run: RunScript, options: RedisCacheOptions): CommandCache {
  refuseUnknown('redisCache', options, ['prefix'])
  const { prefix = 'waybill:command:' } = options
  return {
    claim: async (key, value, { ttlMs }) => {
      const found = await run(claimScript, prefix + key, [value, String(ttlMs)])
      if (found === null || found === undefined) return undefined
      if (typeof found === 'string') return found
      throw new WaybillError('INTERNAL', `Redis answered a claim with ${typeof found}; use a client that returns text.`)
    },
    complete: async (key, pending, { value, ttlMs }) => {
      await run(completeScript, prefix + key, [pending, value, String(ttlMs)])
    },
    release: async (key, pending) => {
      await run(releaseScript, prefix + key, [pending])
    },
  }
}
