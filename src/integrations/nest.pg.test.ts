import 'reflect-metadata'
import { Controller, Get, Module, Post, Req, Res } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import express from 'express'
import { fastify } from 'fastify'
import { commandHttpContract, listedOrigin, type HttpHarness } from '../../test/contract/command-http-contract.ts'
import { listen } from '../../test/integrations/listen.ts'
import { readTokenHeader } from './fetch.ts'
import { nestCommand, type NestResponse } from './nest.ts'

interface AnyRequest {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body?: unknown
}

const principal = (request: AnyRequest): string | undefined => String(request.headers['x-user'] ?? '') || undefined

await commandHttpContract('nest, on what platform-express injects', async ({ commands, deposit, note }) => {
  const app = express()
  app.use(express.json())
  app.post('/deposit', nestCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] }))
  app.post('/note', nestCommand(commands, note, { principal, status: 201 }))
  app.get('/token', (request, response) => void response.send(readTokenHeader(request.headers)))
  return await listen(app)
})

await commandHttpContract('nest, on what platform-fastify injects', async ({ commands, deposit, note }) => {
  const app = fastify()
  const [onDeposit, onNote] = [
    nestCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] }),
    nestCommand(commands, note, { principal, status: 201 }),
  ]
  app.post('/deposit', async (request, reply) => (await onDeposit(request, reply), reply))
  app.post('/note', async (request, reply) => (await onNote(request, reply), reply))
  app.get('/token', async (request) => readTokenHeader(request.headers))
  return { url: await app.listen({ port: 0, host: '127.0.0.1' }), close: () => app.close() }
})

await commandHttpContract('nest, a real application', startNest)

/** Decorators are called by hand: their syntax is not erasable. */
async function startNest({ commands, deposit, note }: HttpHarness): ReturnType<typeof listen> {
  class BankController {
    readonly #deposit = nestCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] })
    readonly #note = nestCommand(commands, note, { principal, status: 201 })
    deposit(request: AnyRequest, response: NestResponse): Promise<void> {
      return this.#deposit(request, response)
    }
    note(request: AnyRequest, response: NestResponse): Promise<void> {
      return this.#note(request, response)
    }
    token(request: AnyRequest): string | undefined {
      return readTokenHeader(request.headers)
    }
  }
  class BankModule {}
  const prototype = BankController.prototype
  const decorate = (method: 'deposit' | 'note' | 'token', decorator: MethodDecorator): void =>
    void decorator(prototype, method, Object.getOwnPropertyDescriptor(prototype, method) ?? {})
  for (const method of ['deposit', 'note'] as const) {
    decorate(method, Post(method))
    Res()(prototype, method, 1)
    Req()(prototype, method, 0)
  }
  decorate('token', Get('token'))
  Req()(prototype, 'token', 0)
  Controller()(BankController)
  Module({ controllers: [BankController] })(BankModule)
  const app = await NestFactory.create(BankModule, { logger: false })
  await app.listen(0, '127.0.0.1')
  return { url: await app.getUrl(), close: () => app.close() }
}
