/**
 * The Pub/Sub server of the package waybill-pubsub-server, which is loaded when one is started.
 */
import type * as ServerPackage from 'waybill-pubsub-server'
import type { PubsubServer, PubsubServerOptions } from 'waybill-pubsub-server'
import { WaybillError } from '../../core/errors.ts'

export type { PubsubServer, PubsubServerOptions } from 'waybill-pubsub-server'

/** Starts a server; it is ready when the promise resolves. */
export async function startPubsubServer(options: PubsubServerOptions = {}): Promise<PubsubServer> {
  const server = await loadPackage()
  try {
    return await server.startPubsubServer(options)
  } catch (error) {
    if (!(error instanceof server.PubsubServerError)) throw error
    throw new WaybillError(error.code, error.message, { cause: error, retryable: false })
  }
}

async function loadPackage(): Promise<typeof ServerPackage> {
  try {
    return await import('waybill-pubsub-server')
  } catch (cause) {
    if ((cause as { readonly code?: unknown }).code !== 'ERR_MODULE_NOT_FOUND') throw cause
    const message = 'The Pub/Sub server is a package of its own. Run: npm install --save-dev waybill-pubsub-server'
    throw new WaybillError('MISSING_PACKAGE', message, { cause })
  }
}
