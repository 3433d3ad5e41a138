/**
 * Both Redis clients as command caches, set up as a service would: no queueing while there is no connection.
 */
import { Redis as IoRedis } from 'ioredis'
import { createClient } from 'redis'
import type { CommandCache } from '../../src/command/cache/cache.ts'
import { ioredisCache, nodeRedisCache } from '../../src/command/cache/redis.ts'

export interface OpenCache {
  readonly cache: CommandCache
  close(): void
}

export interface OpenOptions {
  /** Whether to wait for the first connection, rather than go on without. @default true */
  readonly waits?: boolean
  /** Whether errors of the client are listened to, as its documentation asks for. @default true */
  readonly listens?: boolean
}

export const redisClients: Readonly<Record<string, (url: string, options?: OpenOptions) => Promise<OpenCache>>> = {
  ioredis: async (url, { waits = true, listens = true } = {}) => {
    const client = new IoRedis(url, {
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      retryStrategy: () => 20,
    })
    if (listens) client.on('error', () => {})
    const connected = client.connect()
    if (waits) await connected
    else connected.catch(() => undefined)
    return { cache: ioredisCache(client), close: () => client.disconnect() }
  },
  redis: async (url, { waits = true, listens = true } = {}) => {
    const client = createClient({ url, disableOfflineQueue: true, socket: { reconnectStrategy: () => 20 } })
    if (listens) client.on('error', () => {})
    const connected = client.connect()
    if (waits) await connected
    else connected.catch(() => undefined)
    return { cache: nodeRedisCache(client), close: () => client.destroy() }
  },
}
