/**
 * A command as a handler of Fastify: `app.post('/use-item', fastifyCommand(commands, useItem, { principal: (request) => … }))`.
 *
 * Fastify parses the body and answers what it cannot parse with 400 itself.
 */
import type { Command } from '../command/command.ts'
import type { Commands } from '../command/commands.ts'
import { commandEndpoint, type CommandEndpointOptions } from './command-endpoint.ts'
import { headerOf, type NodeHeaders } from './node-headers.ts'

/** The part of Fastify's request we use. */
export interface FastifyRequestLike {
  readonly headers: NodeHeaders
  readonly body: unknown
}

/** The part of Fastify's reply we use. */
export interface FastifyReplyLike {
  code(status: number): unknown
  headers(headers: Record<string, string>): unknown
  send(body?: string): unknown
}

/** A handler that runs the command with the request's body as its input. */
export function fastifyCommand<Request extends FastifyRequestLike, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request, reply: FastifyReplyLike) => Promise<unknown> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (request, reply) => {
    const { status, headers, body } = await endpoint({
      native: request,
      header: (name) => headerOf(request.headers, name),
      body: () => request.body ?? undefined,
    })
    reply.code(status)
    reply.headers({ ...headers })
    reply.send(body === undefined ? undefined : JSON.stringify(body))
    return reply
  }
}
