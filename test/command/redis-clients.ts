/**
 * Both Redis clients as command caches, set up as a service would: no queueing while there is no connection.
 */
import { Redis as IoRedis } from 'ioredis'
import { createClient } from 'redis'
import type { CommandCache } from '../../src/command/cache.ts'
import { ioredisCache, nodeRedisCache } from '../../src/command/redis-cache.ts'

export interface OpenCache {
  readonly cache: CommandCache
  close(): void
}

export const redisClients: Readonly<Record<string, (url: string) => Promise<OpenCache>>> = {
  ioredis: async (url) => {
    const client = new IoRedis(url, {
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      retryStrategy: () => 20,
    })
    client.on('error', () => {})
    await client.connect()
    return { cache: ioredisCache(client), close: () => client.disconnect() }
  },
  redis: async (url) => {
    const client = createClient({ url, disableOfflineQueue: true, socket: { reconnectStrategy: () => 20 } })
    client.on('error', () => {})
    await client.connect()
    return { cache: nodeRedisCache(client), close: () => client.destroy() }
  },
}
