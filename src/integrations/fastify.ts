/**
 * Commands and ingests as handlers of Fastify:
 *
 *   app.post('/use-item', fastifyCommand(commands, useItem, { principal: (request) => … }))
 *   for (const url of ['/readings', '/readings/*']) app.all(url, fastifyIngest(ingest, { path: '/readings' }))
 *
 * Fastify parses the body and answers what it cannot parse with 400, and what exceeds its `bodyLimit` with 413 itself. What it changes
 * in silence (a name that stands twice) is refused where a plugin keeps the bytes as `request.rawBody`.
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

/** The part of Fastify's request we use. */
export interface FastifyRequestLike {
  readonly headers: NodeHeaders
  readonly body: unknown
  /** The bytes or text of the body, where a plugin kept them. */
  readonly rawBody?: unknown
}

/** What an ingest reads of it. */
export interface FastifyIngestRequest {
  readonly method: string
  readonly url: string
  readonly headers: NodeHeaders
  readonly body: unknown
  readonly rawBody?: unknown
}

/** The part of Fastify's reply we use. */
export interface FastifyReplyLike {
  code(status: number): unknown
  headers(headers: Record<string, string>): unknown
  send(body?: string): unknown
  readonly raw?: Closing
}

/** A handler that runs the command with the request's body as its input. */
export function fastifyCommand<Request extends FastifyRequestLike, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request, reply: FastifyReplyLike) => Promise<unknown> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (request, reply) =>
    send(
      reply,
      await endpoint({
        native: request,
        header: (name) => headerOf(request.headers, name),
        body: () => parsedBody(request),
        signal: closedSignal(reply.raw),
      }),
    )
}

/** A handler of everything under `options.path`: facts by POST, their state by GET. */
export function fastifyIngest<Request extends FastifyIngestRequest>(
  ingest: Ingest,
  options: IngestEndpointOptions<Request>,
): (request: Request, reply: FastifyReplyLike) => Promise<unknown> {
  const endpoint = ingestEndpoint(ingest, options)
  return async (request, reply) => {
    const { method, url, headers } = request
    const header = (name: string): string | undefined => headerOf(headers, name)
    return send(
      reply,
      await endpoint({ native: request, method, url, header, body: () => parsedBody(request, ingest.limits.maxBodyBytes) }),
    )
  }
}

function send(reply: FastifyReplyLike, { status, headers, body }: HttpAnswer): FastifyReplyLike {
  reply.code(status)
  reply.headers({ ...headers })
  reply.send(body === undefined ? undefined : JSON.stringify(body))
  return reply
}
