/**
 * Which nodes take a fetch by the topic's id (version 13, Kafka 3.1 and later). Only such a fetch can never be answered from
 * another topic of the same name; asked for in a version that it does not know, a node ends the connection instead of answering.
 *
 * A node is asked once. It may come back with another version, and then it has not answered before: who gets no answer forgets it.
 */
import type { ClientParts } from './parts.ts'

export interface FetchById {
  isTakenBy(node: number): Promise<boolean>
  forget(node: number): void
}

interface RawVersions {
  readonly apiKeys: readonly { readonly apiKey: number; readonly maxVersion: number }[]
}

const fetchKey = 1
const firstVersionById = 13

export function fetchById({ ask }: Pick<ClientParts, 'ask'>): FetchById {
  const known = new Map<number, Promise<boolean>>()
  const look = async (node: number): Promise<boolean> => {
    const what = `versions of node ${node}`
    const request = { purpose: 'fetch', node, api: 'apiVersionsV3', args: ['waybill', '1'], what } as const
    const { apiKeys } = await ask<RawVersions>(request)
    return apiKeys.some(({ apiKey, maxVersion }) => apiKey === fetchKey && maxVersion >= firstVersionById)
  }
  return {
    isTakenBy: (node) => {
      const asked = known.get(node) ?? look(node)
      known.set(node, asked)
      asked.catch(() => known.delete(node))
      return asked
    },
    forget: (node) => void known.delete(node),
  }
}
