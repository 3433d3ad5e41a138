/**
 * Commands and ingests as handlers of Express 5:
 *
 *   app.post('/use-item', express.json(), expressCommand(commands, useItem, { principal: … }))
 *   app.use('/readings', express.json({ limit: '1mb' }), expressIngest(ingest, { path: '/readings' }))
 *
 * Use them behind `express.json()`, whose `limit` is 100 kB unless told otherwise. A promise that rejects, and a body that cannot
 * be parsed or is too large, reach Express's own error handling. What `express.json()` changes in silence (a name that stands twice)
 * is refused where it keeps the bytes: `express.json({ verify: (request, _response, bytes) => (request.rawBody = bytes) })`.
 */
import type { Command } from '../command/model/command.ts'
import type { Commands } from '../command/commands.ts'
import type { HttpAnswer } from '../command/http-status.ts'
import type { Ingest } from '../ingest/ingest.ts'
import { commandEndpoint, type CommandEndpointOptions } from './command-endpoint.ts'
import { ingestEndpoint, type IngestEndpointOptions } from './ingest-endpoint.ts'
import { closedSignal, headerOf, type Closing, type NodeHeaders } from './node-headers.ts'
import { parsedBody } from './read-body.ts'

export type { CommandEndpointOptions } from './command-endpoint.ts'
export type { IngestEndpointOptions } from './ingest-endpoint.ts'

/** The part of Express's request we use. */
export interface ExpressRequestLike {
  readonly headers: NodeHeaders
  readonly body?: unknown
  /** The bytes of the body, where something kept them. */
  readonly rawBody?: unknown
}

/** What an ingest reads of it. */
export interface ExpressIngestRequest {
  readonly method: string
  readonly originalUrl: string
  readonly headers: NodeHeaders
  readonly body?: unknown
  readonly rawBody?: unknown
}

/** The part of Express's response we use. */
export interface ExpressResponseLike extends Closing {
  status(status: number): unknown
  set(headers: Record<string, string>): unknown
  send(body?: string): unknown
  end(): unknown
}

/** A handler that runs the command with the request's body as its input. */
export function expressCommand<Request extends ExpressRequestLike, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request, response: ExpressResponseLike) => Promise<void> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (request, response) =>
    send(
      response,
      await endpoint({
        native: request,
        header: (name) => headerOf(request.headers, name),
        body: () => parsedBody(request),
        signal: closedSignal(response),
      }),
    )
}

/** A handler of everything under `options.path`: facts by POST, their state by GET. */
export function expressIngest<Request extends ExpressIngestRequest>(
  ingest: Ingest,
  options: IngestEndpointOptions<Request>,
): (request: Request, response: ExpressResponseLike) => Promise<void> {
  const endpoint = ingestEndpoint(ingest, options)
  return async (request, response) => {
    const { method, originalUrl: url, headers } = request
    const header = (name: string): string | undefined => headerOf(headers, name)
    send(
      response,
      await endpoint({ native: request, method, url, header, body: () => parsedBody(request, ingest.limits.maxBodyBytes) }),
    )
  }
}

function send(response: ExpressResponseLike, { status, headers, body }: HttpAnswer): void {
  response.status(status)
  response.set({ ...headers })
  if (body === undefined) response.end()
  else response.send(JSON.stringify(body))
}
