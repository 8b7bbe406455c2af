// A TLS origin for the tests of the C++ headers, over HTTP/2 and HTTP/1.1: node origin.js FOLDER [mutual]
// FOLDER holds server.pem, server.key and ca.pem; with `mutual` a client shows a certificate of that authority.
// Writes its port in one line; ends with its standard input.
'use strict';
const fs = require('fs');
const http2 = require('http2');

const [folder, mutual] = process.argv.slice(2);
const server = http2.createSecureServer({
    cert: fs.readFileSync(`${folder}/server.pem`),
    key: fs.readFileSync(`${folder}/server.key`),
    ca: fs.readFileSync(`${folder}/ca.pem`),
    requestCert: mutual === 'mutual',
    rejectUnauthorized: mutual === 'mutual',
    allowHTTP1: true,
}, (request, response) => {
    if (request.url === '/silent') {
        return;
    }
    if (request.url === '/half') {
        response.writeHead(200);
        response.write('half');
        return;
    }
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
        const peer = request.socket.getPeerCertificate();
        response.setHeader('X-Version', request.httpVersion);
        response.setHeader('X-Tls', request.socket.getProtocol());
        response.setHeader('X-Client', peer && peer.subject ? peer.subject.CN : '');
        response.setHeader('Set-Cookie', ['a=1', 'b=2']);
        response.end(`${request.method} ${request.url}\n${Buffer.concat(parts)}`);
    });
});
server.on('sessionError', () => {});
server.on('tlsClientError', () => {});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`));
process.stdin.on('end', () => process.exit(0)).resume();
