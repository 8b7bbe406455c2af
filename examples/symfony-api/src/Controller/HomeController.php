<?php

declare(strict_types=1);

namespace App\Controller;

use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

final class HomeController extends AbstractController
{
    public function home(Request $request): Response
    {
        return $this->render('home.html.twig', [
            'php' => PHP_VERSION,
            'pid' => getmypid(),
            'protocol' => $request->getProtocolVersion(),
        ]);
    }

    public function hello(): Response
    {
        return $this->render('hello.html.twig', ['name' => 'world']);
    }

    public function message(): JsonResponse
    {
        return new JsonResponse(['message' => 'Hello, world!']);
    }
}
