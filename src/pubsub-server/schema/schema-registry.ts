/**
 * Schemas by name.
 */
import type { Broker } from '../broker.ts'
import type { SchemaResource } from '../resources.ts'
import { notFound } from '../rpc-error.ts'

export class SchemaRegistry {
  readonly #schemas = new Map<string, SchemaResource[]>()

  constructor(_broker: Broker) {}

  has(name: string): boolean {
    return this.#schemas.has(name)
  }

  get(name: string): SchemaResource {
    const revision = this.#schemas.get(name)?.at(-1)
    if (revision === undefined) throw notFound('schema', name)
    return revision
  }
}
